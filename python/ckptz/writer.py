"""Saving: a state against the base, into one snapshot file and perhaps a residual.

The base is what a reader of the newest snapshot will have. It goes ahead of the store while a
delta is written, so until that is durable it counts as lost.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from . import codec
from .encode import Encoded, encode_tensors
from .errors import CkptzWarning, FormatError, MissingSnapshotError
from .file import RESIDUAL, SNAPSHOT, FileWriter
from .messagepack import encode_values
from .policy import Policy
from .restore import OpenChain, identity, nbytes_of, whole
from .schema import Schema
from .snapshot import Meta, identify, pack_values, schema_digest
from .state import FlatState, contiguous
from .storage import Writer
from .store import Entry, Store, file_name

__all__ = ["SnapshotWriter"]

Bytes = NDArray[np.uint8]


@dataclass(slots=True)
class Base:
    """The reconstruction after a snapshot: what the next delta is taken against."""

    entry: Entry
    schema: Schema
    arrays: list[Bytes]
    values: list[Any]
    length: int
    """Snapshots in the chain."""


@dataclass(slots=True)
class _Job:
    """One snapshot on its way to disk."""

    flat: FlatState
    schema: Schema
    meta: Meta
    base: Base | None
    """None: a full snapshot."""
    specs: list[codec.Spec]


class SnapshotWriter:
    """Writes the snapshots of one store, one after another."""

    def __init__(self, store: Store, policy: Policy, exact: bool, full_every: int) -> None:
        """Say how to write; nothing is touched yet. `exact`: whether the newest has a residual."""
        self.store = store
        self.policy = policy
        self._exact = exact
        self._full_every = full_every
        self._base: Base | None = None
        self.tip: Entry | None = None
        """Where to go on from, if not from the newest snapshot."""
        self._schema: Schema | None = None
        self._specs: list[codec.Spec] = []
        self._warned: set[int] = set()

    def forget_base(self) -> None:
        """Have the base rebuilt from the store before the next delta."""
        self._base = None

    def rewind(self, entry: Entry) -> None:
        """Go on from an older snapshot."""
        self.tip = entry
        self._base = None

    def write(
        self,
        step: int,
        flat: FlatState,
        leave: Sequence[int],
        threads: int,
        progress: Callable[[int], None] | None = None,
    ) -> Entry:
        """Write one snapshot durably and return its entry.

        leave: sequence numbers of snapshots that are no longer on the line. Raises `OSError`
        where the disk refuses; the store is then as it was.
        """
        base = self._current_base(threads)
        schema = self._schema_of(flat)
        full = base is None or 0 < self._full_every <= base.length
        previous = base.entry if base is not None else self.tip
        meta = self._meta(step, flat, schema, None if full else base, previous, leave)
        job = _Job(flat, schema, meta, None if full else base, self._specs_of(schema))
        # A delta takes the base ahead of the store.
        if not full:
            self._base = None
        entry = self._commit(job, threads, progress)
        self._base = self._next_base(job, base, entry)
        self.tip = None
        return entry

    def _current_base(self, threads: int) -> Base | None:
        if self._base is None:
            self._base = self._rebuild(threads)
        return self._base

    def _rebuild(self, threads: int) -> Base | None:
        """Restore the base from the newest good snapshot, without its residual."""
        for entry in list(self.store.restorable(self.tip)):
            if not self.store.can_restore(entry):
                continue
            try:
                with OpenChain.of_store(self.store, entry, threads=threads) as chain:
                    nodes = chain.schema.tensors
                    arrays = [codec.empty_bytes(nbytes_of(node)) for node in nodes]
                    chain.read([whole(t, nodes[t], array) for t, array in enumerate(arrays)])
                    return Base(entry, chain.schema, arrays, chain.values, len(chain.layers))
            except (FormatError, MissingSnapshotError) as error:
                self.store.mark_damaged(entry, error)
                self._warn(f"going on from an older snapshot: {error}")
        return None

    def confirm(self, entries: Sequence[Entry], threads: int) -> None:
        """Read snapshots to see whether they can be restored; mark those that cannot."""
        for entry in entries:
            if self._base is not None and self._base.entry.id == entry.id:
                continue
            try:
                with OpenChain.of_store(self.store, entry, threads=threads) as chain:
                    chain.check()
            except (FormatError, MissingSnapshotError) as error:
                self.store.mark_damaged(entry, error)
                self._warn(f"step {entry.meta.step} is damaged and will be saved anew: {error}")

    @staticmethod
    def _warn(text: str) -> None:
        warnings.warn(text, CkptzWarning, stacklevel=6)

    def _schema_of(self, flat: FlatState) -> Schema:
        if self._schema is None or self._schema.raw != flat.schema:
            self._schema = Schema.parse(flat.schema)
            self._specs = []
        return self._schema

    def _specs_of(self, schema: Schema) -> list[codec.Spec]:
        if not self._specs:
            matched = set(self._warned)
            for node in schema.tensors:
                path = node.path
                number = self.policy.match(path)
                rule = None if number is None else self.policy.rules[number]
                self._specs.append(codec.spec_for(rule, path, node.dtype, node.shape))
                matched.add(-1 if number is None else number)
            for number, rule in enumerate(self.policy.rules):
                if number not in matched:
                    self._warned.add(number)
                    self._warn(f"the rule {rule.pattern!r} matches no tensor")
        return self._specs

    def _meta(
        self,
        step: int,
        flat: FlatState,
        schema: Schema,
        base: Base | None,
        previous: Entry | None,
        leave: Sequence[int],
    ) -> Meta:
        name = schema_digest(schema.raw)
        same = base is not None and base.entry.meta.schema == name
        values, changes = pack_values(
            encode_values(flat.values), base.values if base is not None and same else None
        )
        recorded = base is not None and self.store.policy(base.entry) == self.policy
        last = self.store.last_sequence
        ranges = list(previous.meta.rewound) if previous is not None else []
        ranges += [(number, number) for number in leave]
        ranges.append((previous.meta.sequence + 1 if previous is not None else 0, last))
        return Meta(
            sequence=last + 1,
            step=step,
            parent=None if base is None else base.entry.id,
            schema=name,
            created=time.time_ns() // 1_000_000,
            values=values,
            changes=changes,
            rewound=_joined(ranges),
            policy=None if recorded else [tuple(rule) for rule in self.policy.to_builtins()],
        )

    def _commit(self, job: _Job, threads: int, progress: Callable[[int], None] | None) -> Entry:
        storage = self.store.storage
        with contextlib.ExitStack() as undo:
            sink = storage.writer()
            undo.callback(sink.discard)
            encoded, meta = self._encode(job, sink, threads, progress)
            found = identify(meta, encoded.headers)
            residual = None
            if self._exact and encoded.lossy:
                residual = storage.writer()
                undo.callback(residual.discard)
                self._encode_residual(job, found, residual, threads)
                residual.sync()
            sink.sync()
            names = [
                file_name(job.meta.step, found, residual=True),
                file_name(job.meta.step, found),
            ]
            for writer, name in zip((residual, sink), names, strict=True):
                if writer is not None:
                    undo.callback(storage.remove, name)
                    writer.rename(name)
                    storage.sync()
            self.store.refresh()
            entry = self.store.entries[found]
            undo.pop_all()
        self._delete_old_residuals(found)
        return entry

    def _encode(
        self, job: _Job, sink: Writer, threads: int, progress: Callable[[int], None] | None
    ) -> tuple[Encoded, bytes]:
        """Write a snapshot file; return its records and its meta."""
        file = FileWriter(sink, SNAPSHOT)
        encoded = encode_tensors(
            file,
            job.schema,
            job.flat.arrays,
            self._bases(job),
            job.specs,
            threads=threads,
            progress=progress,
        )
        meta = msgspec.structs.replace(job.meta, marks=int(not encoded.finite)).encode()
        known = job.base is not None and job.base.entry.meta.schema == job.meta.schema
        file.finish(meta, encoded.headers, None if known else job.schema.raw)
        return encoded, meta

    def _bases(self, job: _Job) -> list[Bytes | None]:
        """Arrays of the base in the order of the new schema, None where it has none such."""
        if job.base is None:
            return [None] * len(job.schema.tensors)
        if job.base.schema is job.schema or job.base.schema.raw == job.schema.raw:
            return list(job.base.arrays)
        known = dict(zip(map(identity, job.base.schema.tensors), job.base.arrays, strict=True))
        return [known.get(identity(node)) for node in job.schema.tensors]

    def _encode_residual(self, job: _Job, parent: bytes, sink: Writer, threads: int) -> None:
        """Write the exact difference between the state and the base as it is now."""
        file = FileWriter(sink, RESIDUAL)
        arrays = job.flat.arrays
        # Where there was no base the record is exact: it is its own base.
        owns = [
            codec.as_bytes(contiguous(array)) if base is None else base
            for array, base in zip(arrays, self._bases(job), strict=True)
        ]
        exact = [codec.spec_of(None, False, False)] * len(arrays)
        encoded = encode_tensors(
            file, job.schema, arrays, owns, exact, residual=True, threads=threads
        )
        meta = job.meta
        own = Meta(meta.sequence, meta.step, parent, meta.schema, meta.created)
        file.finish(own.encode(), encoded.headers, None)

    def _next_base(self, job: _Job, old: Base | None, entry: Entry) -> Base:
        values = encode_values(job.flat.values)
        if job.base is not None:
            bases = self._bases(job)
            arrays = [
                _copy(array) if base is None else base
                for array, base in zip(job.flat.arrays, bases, strict=True)
            ]
            return Base(entry, job.schema, arrays, values, job.base.length + 1)
        # A full snapshot is exact. The old base's memory serves again where it fits.
        spare: dict[Any, Bytes] = {}
        if old is not None:
            spare = dict(zip(map(identity, old.schema.tensors), old.arrays, strict=True))
        arrays = [
            _copy(array, spare.get(identity(node)))
            for array, node in zip(job.flat.arrays, job.schema.tensors, strict=True)
        ]
        return Base(entry, job.schema, arrays, values, 1)

    def _delete_old_residuals(self, kept: bytes) -> None:
        old = [residual for parent, residual in self.store.residuals.items() if parent != kept]
        for residual in old:
            with contextlib.suppress(OSError):
                self.store.storage.remove(residual.name)
        if old:
            self.store.refresh()


def _copy(array: NDArray[Any], room: Bytes | None = None) -> Bytes:
    """Copy an array's bytes, into `room` if it is given."""
    source = codec.as_bytes(contiguous(array))
    if room is None:
        room = codec.empty_bytes(source.size)
    np.copyto(room, source)
    return room


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges as ones that rise and do not touch; empty ones are left out."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(r for r in ranges if r[0] <= r[1]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined
