"""Saving: a state against the base, into one snapshot file and perhaps a residual.

The base is what a reader of the newest snapshot will have. It goes ahead of the store while a
delta is written, so until that is durable it counts as lost.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from . import codec
from .base import Base, Sources, predictions_of, rebuild
from .encode import Encoded, Predicted, encode_tensors, sums_now
from .errors import NetworkError, StateChangedError
from .file import EXTRA, RESIDUAL, FileWriter, features_of
from .loss import pack_extra, stale_tensors
from .messagepack import encode_values
from .policy import Policy
from .publish import Attempt, attempt
from .reads import ReadLimit, Room, TooMuchError
from .recording import new_meta
from .schema import Schema
from .snapshot import Extra, Meta, identify
from .specs import Specs
from .state import FlatState
from .storage import Sink
from .store import Entry, Store

__all__ = ["SnapshotWriter"]

# Tensors that others predict are searched for at so many deltas after a full snapshot, and then at
# every so many.
_EAGER = 3
_SELDOM = 10


class _New(msgspec.Struct, frozen=True):
    """What is to be saved, against whatever."""

    step: int
    flat: FlatState
    schema: Schema
    values: list[Any]
    """Encoded."""
    previous: Entry | None
    """What the line goes on from."""
    metrics: Mapping[str, float]


class _Job(msgspec.Struct):
    """One snapshot on its way to disk."""

    sources: Sources
    schema: Schema
    meta: Meta
    holds_schema: bool
    specs: list[codec.Spec]
    own: bool
    stale: dict[int, int]
    """Tensors that are left as they were, with the age that they have then."""
    known: list[Predicted | None]
    """How records were predicted before."""
    search: bool
    """Whether to look for more that can be."""
    room: Room
    """What it may take."""


class SnapshotWriter:
    """Writes the snapshots of one store, one after another."""

    def __init__(
        self, store: Store, policy: Policy, exact: bool, full_every: int, limit: ReadLimit
    ) -> None:
        """Say how to write; nothing is touched yet. `exact`: whether the newest has a residual."""
        self.store = store
        self.policy = policy
        self._exact = exact
        self._full_every = full_every
        self.limit = limit
        self._base: Base | None = None
        self.tip: Entry | None = None
        """Where to go on from, if not from the newest snapshot."""
        self._schema: Schema | None = None
        self._specs = Specs(policy)
        self._restored: tuple[bytes, bool] | None = None
        self._has_saved = False

    def forget_base(self) -> None:
        """Have the base rebuilt from the store before the next delta."""
        self._base = None

    def files_moved(self) -> None:
        """Take note that this process has put snapshots into other files."""
        if self._base is not None and self._base.entry.id in self.store.entries:
            chain = self.store.chain(self.store.entries[self._base.entry.id])
            self._base.files = [layer.listed for layer in chain]

    def rewind(self, entry: Entry) -> None:
        """Go on from an older snapshot."""
        self.tip = entry
        self._base = None

    def resumed(self, entry: Entry, exact: bool, rewind: bool) -> None:
        """Take note of a restore that training may go on from; rewind: it surely does."""
        # One after saves of this object is a look back, unless it says otherwise.
        if rewind or not self._has_saved:
            self._restored = (entry.id, exact)

    def write(
        self,
        step: int,
        flat: FlatState,
        after: Entry | None,
        threads: int,
        progress: Callable[[int], None] | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> Entry:
        """Write one snapshot durably and return its entry.

        after: the snapshot that the line goes on from, None if it starts anew. metrics: recorded
        with it. Raises `OSError` where the disk refuses; the store is then as it was.
        """
        schema = self._schema_of(flat)
        old, previous = self._base_at(after, threads)
        new = _New(step, flat, schema, encode_values(flat.values), previous, metrics or {})
        if old is not None and self._extends(old, schema):
            with contextlib.suppress(TooMuchError):
                return self._save(new, old, old, threads, progress)
            old = None  # spent
        return self._save(new, old, None, threads, progress)

    def _extends(self, base: Base, schema: Schema) -> bool:
        """Whether to try a delta against a base."""
        if 0 < self._full_every <= len(base.files):
            return False
        return self.limit.expects_room(base.entry, schema, self._exact)

    def _save(
        self,
        new: _New,
        old: Base | None,
        base: Base | None,
        threads: int,
        progress: Callable[[int], None] | None,
    ) -> Entry:
        """Write a delta against a base, or a full snapshot; `old` has memory that may be used.

        Raises `TooMuchError` if the delta does not fit; the base is lost then.
        """
        job = self._job(new, old, base)
        entry, headers = self._commit(job, threads, progress)
        self.tip = self._restored = None
        self._has_saved = True
        before = [] if base is None else base.files
        files, known = [*before, entry.listed], predictions_of(new.schema, headers)
        self._base = Base(entry, new.schema, job.sources.after, new.values, files, known)
        if base is None:
            self.limit.note_full(entry)
        return entry

    def _job(self, new: _New, old: Base | None, base: Base | None) -> _Job:
        """Say how to save; whatever base there was is spent."""
        schema, previous = new.schema, new.previous
        specs = self._specs.of(schema)
        meta = new_meta(self.store, self.policy, new.step, schema, new.values, base, previous)
        holds_schema = base is None or base.entry.meta.schema != meta.schema
        stale = {} if base is None else stale_tensors(self.policy, base, schema)
        restores = 0
        if base is not None and previous is not None:
            restores = Extra.of(previous.meta).lossy_restores
            restores += self._restored == (previous.id, False)
        extra = pack_extra(restores, stale, new.metrics)
        meta = msgspec.structs.replace(meta, extra=extra)
        known, search = _siblings(schema, base)
        room = Room(math.inf) if base is None else self.limit.room(base.entry, schema)
        # From here to the end the base is neither the old nor the new one.
        self._base = None
        sources = Sources.of(new.flat.arrays, schema, old, base)
        own = new.flat.own
        return _Job(sources, schema, meta, holds_schema, specs, own, stale, known, search, room)

    def _base_at(self, after: Entry | None, threads: int) -> tuple[Base | None, Entry | None]:
        """Return the base after a snapshot, or an older one if that is damaged, and which."""
        base, self._base = self._base, None
        if after is None:
            return None, None
        # If a file has been touched since, the snapshot may be damaged.
        files = [layer.listed for layer in self.store.chain(after)]
        if base is not None and base.files == files:
            self._base = base
            return base, after
        base = None  # whose memory is needed
        self._base, previous = rebuild(self.store, after, threads)
        return self._base, previous

    def _schema_of(self, flat: FlatState) -> Schema:
        if self._schema is None or self._schema.raw != flat.schema:
            self._schema = Schema.parse(flat.schema)
        return self._schema

    def _commit(
        self, job: _Job, threads: int, progress: Callable[[int], None] | None
    ) -> tuple[Entry, bytes]:
        """Make a snapshot durable; return its entry and its record headers."""
        targets = job.sources.targets
        with attempt(self.store, job.meta, sum(target.nbytes for target in targets)) as files:
            watched = self._exact and not job.meta.full and not job.own
            encoded, meta, size = self._encode(job, files, threads, progress, watched)
            job.room.check(size)
            found = identify(meta, encoded.headers)
            if self._exact and (encoded.lossy or job.stale):
                sink = files.residual(found)
                residual, sums = self._encode_residual(job, found, sink, threads, watched)
                job.room.check(size, residual)
            elif watched:
                sums = sums_now(job.schema, targets, job.specs, threads)
            if watched and sums != encoded.sums:
                raise StateChangedError(
                    f"{self.store.storage}: step {job.meta.step} is not saved: the state's "
                    "arrays were changed meanwhile"
                )
            entry = files.commit(found, meta)
        self._delete_old(found)
        return entry, encoded.headers

    def _encode(
        self,
        job: _Job,
        files: Attempt,
        threads: int,
        progress: Callable[[int], None] | None,
        watched: bool,
    ) -> tuple[Encoded, bytes, int]:
        """Write a snapshot file; return its records, its meta and its size."""
        schema = job.schema.raw if job.holds_schema else None
        features = features_of(job.meta.encode(), schema or b"")
        file = FileWriter(files.sink, files.kind, features | EXTRA * bool(job.meta.extra))
        encoded = encode_tensors(
            file,
            job.schema,
            job.sources.targets,
            job.sources.bases,
            job.specs,
            stale=job.stale,
            known=job.known,
            search=job.search,
            watched=watched,
            threads=threads,
            progress=progress,
        )
        meta = msgspec.structs.replace(files.meta, marks=int(not encoded.finite)).encode()
        return encoded, meta, file.finish(meta, encoded.headers, schema)

    def _encode_residual(
        self, job: _Job, parent: bytes, sink: Sink, threads: int, watched: bool
    ) -> tuple[int, list[int]]:
        """Write the exact difference of the state to its reconstruction; return size and sums."""
        file = FileWriter(sink, RESIDUAL)
        targets, after = job.sources.targets, job.sources.after
        exact = [codec.EXACT] * len(targets)
        encoded = encode_tensors(
            file,
            job.schema,
            targets,
            after,
            exact,
            residual=True,
            watched=watched,
            threads=threads,
        )
        meta = job.meta
        own = Meta(meta.sequence, meta.step, parent, meta.schema, meta.created)
        return file.finish(own.encode(), encoded.headers, None), encoded.sums

    def _delete_old(self, kept: bytes) -> None:
        """Delete the residuals of older snapshots, and what can never become one."""
        dead = [part.name for part in self.store.catalog.joined.dead]
        pinned = {entry.id for entry in self.store.pinned_steps().values()}
        exact = {kept, *self.store.pinned, *pinned, *self.store.orphans}
        old = self.store.residual_names(exact) + dead
        # The snapshot is there: what cannot be deleted now is deleted after a later one.
        with contextlib.suppress(NetworkError):
            for name in old:
                self._delete(name)
            if old:
                self.store.refresh(alone=True, all_files=False)

    def _delete(self, name: str) -> None:
        try:
            self.store.storage.remove(name)
        except NetworkError:
            raise
        except OSError:
            pass


def _siblings(schema: Schema, base: Base | None) -> tuple[list[Predicted | None], bool]:
    """Return how records were predicted before, and whether to search for more.

    Both follow from the store, so that a manager that is opened anew writes the same.
    """
    if base is None:
        return [], False
    if base.schema.raw != schema.raw:
        return [], True
    deltas = len(base.files) - 1
    return base.predictions, deltas < _EAGER or deltas % _SELDOM == 0
