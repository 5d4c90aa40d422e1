"""Bringing tensors back: a chain of files is read window by window and decoded by the core."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from . import codec
from .closing import Closing
from .dtypes import numpy_dtype
from .errors import ChecksumError, FormatError, warn
from .file import PAIRS, PAYLOAD_AT, PREDICTED_BASES
from .layers import (
    MOST_FILES,
    LayerFiles,
    Numbering,
    SchemaOf,
    Selection,
    new_array,
    snapshot_of,
    whole,
)
from .schema import decode_values
from .snapshot import Extra, resolve_values
from .storage import Storage, is_shortage
from .store import Entry, Store

__all__ = ["OpenChain", "ResidualGoneError"]

# Bytes, stored and decoded, that are worked on at once.
WINDOW = 16 << 20


class ResidualGoneError(FileNotFoundError):
    """A residual has been deleted since the store was read."""


class _Plan(msgspec.Struct, frozen=True):
    """Layers, and what the core makes of their record headers."""

    layers: list[Entry]
    chain: codec.Chain


class OpenChain(Closing):
    """The files that lead to one snapshot, open, with their record headers read.

    A context manager. With a residual as the last layer lossy tensors are exact; a damaged
    residual is warned of and left out.
    """

    def __init__(
        self,
        storage: Storage,
        chain: Sequence[Entry],
        schema_of: SchemaOf,
        *,
        residual: Entry | None = None,
        threads: int = 1,
        strict: bool = False,
        look_again: bool = False,
    ) -> None:
        """Open a chain, oldest first. strict: a damaged residual is an error.

        look_again: a residual that is gone raises `ResidualGoneError`, for a caller who will see
        whether something newer has taken its place. Raises `FormatError`, `MissingSnapshotError`
        or `OSError`.
        """
        self.entry = chain[-1]
        self.schema = schema_of(self.entry)
        self.residual: Entry | None = None
        self._storage = storage
        self._threads = threads
        self.layers = list(chain)
        self._schema_of = schema_of
        self._numbering = Numbering()
        # Those of the wanted snapshot come first: they are what selections name.
        self._members = self._numbering.members(self.schema)
        self._files = LayerFiles(storage, briefly=len(chain) > MOST_FILES)
        self._closed = False
        try:
            self._files.open(chain)
            self.values = self._resolved()
            self._plan = self._open_residual(residual, strict, look_again)
        except BaseException:
            self._files.close()
            raise

    def _open_residual(self, residual: Entry | None, strict: bool, look_again: bool) -> _Plan:
        if residual is None:
            return self._planned(None)
        try:
            try:
                self._files.open([residual])
            except FileNotFoundError as error:
                if look_again:
                    raise ResidualGoneError(*error.args, error.filename) from error
                raise
            plan = self._planned(residual)
        except (FormatError, OSError) as error:
            if strict or is_shortage(error) or isinstance(error, ResidualGoneError):
                raise
            plan = self._planned(None)
            self._leave_residual(error)
            return plan
        self.residual = residual
        return plan

    @classmethod
    def of_store(
        cls,
        store: Store,
        entry: Entry,
        *,
        residual: Entry | None = None,
        threads: int = 1,
        strict: bool = False,
        look_again: bool = False,
    ) -> OpenChain:
        """Open the chain of a store's snapshot."""
        chain = store.chain(entry)
        return cls(
            store.storage,
            chain,
            lambda layer: store.schema(layer, chain),
            residual=residual,
            threads=threads,
            strict=strict,
            look_again=look_again,
        )

    def _resolved(self) -> list[Any]:
        metas = [stored.meta for stored in self._files.stored]
        try:
            return resolve_values(metas, self.schema.value_count)
        except FormatError as error:
            raise self._about(self.entry, str(error)) from error

    @property
    def headers(self) -> bytes:
        """Record headers of the snapshot."""
        return self._files.stored[len(self.layers) - 1].headers

    def plain_values(self) -> list[object]:
        """Return the plain values in schema order. Raises `FormatError`."""
        try:
            return decode_values(self.values)
        except FormatError as error:
            raise self._about(self.entry, str(error)) from error

    def _about(self, layer: Entry, what: str, kind: type[FormatError] = FormatError) -> FormatError:
        error = kind(f"{self._storage / layer.name}: {what}")
        error.snapshot = layer.id
        return error

    def _planned(self, residual: Entry | None, *, every_layer: bool = False) -> _Plan:
        """Read the record headers of all layers, with or without a residual."""
        layers = self.layers if residual is None else [*self.layers, residual]
        path = self._files.path[: len(layers)]
        count = 1 + max(file for file, _ in path)
        with self._named(layers, None):
            files = self._files.headers(self._numbering, self._schema_of, count)
            if residual is not None:
                files[-1] = [snapshot_of(self._files.stored[-1], self._members, residual=True)]
            chain = codec.Chain(self._numbering.shapes(), files, path, every_layer)
        for number, (layer, (file, _)) in enumerate(zip(layers, path, strict=True)):
            used = chain.predicts(number) * PREDICTED_BASES | chain.has_pairs(number) * PAIRS
            if used & ~self._files.readers[file].features:
                raise self._about(layer, "offset 12: predicted bases or pairs without feature bit")
        for number, length in enumerate(chain.payload_bytes()):
            found = self._files.readers[number].payload_bytes
            if found != length:
                layer = layers[[file for file, _ in path].index(number)]
                what = f"the payload has {found} bytes, its records {length}"
                raise self._about(layer, f"offset {PAYLOAD_AT}: {what}")
        return _Plan(layers, chain)

    def _leave_residual(self, error: Exception) -> None:
        step = self.entry.meta.step
        warn(f"the residual of step {step} is lost, the reconstruction is used: {error}")

    @contextlib.contextmanager
    def _named(self, layers: Sequence[Entry], chain: codec.Chain | None) -> Iterator[None]:
        """Turn the core's errors into ones that name file, tensor and offset."""
        try:
            yield
        except codec.ReadError as error:
            number, at = error.args
            where = str(self._storage / layers[at].name)
            raise OSError(number, os.strerror(number), where) from None
        except codec.RecordError as error:
            message, checksum, layer, tensor, chunk, offset = error.args
            where = message
            if tensor is not None:
                where = f"tensor {self._numbering.nodes[tensor].path}: {where}"
            if not (chain is None or chunk is None or layer is None or tensor is None):
                start = chain.chunk_offset(layer, tensor, chunk) or 0
                where = f"offset {PAYLOAD_AT + start + (offset or 0)}: {where}"
            kind = ChecksumError if checksum else FormatError
            raise self._about(layers[-1 if layer is None else layer], where, kind) from None

    def read(
        self, selections: Sequence[Selection], progress: Callable[[int], None] | None = None
    ) -> None:
        """Fill the selections. Raises `FormatError`; what they hold then means nothing."""
        if self._closed:
            raise ValueError(f"the files of step {self.entry.meta.step} have been closed")
        try:
            self._read(self._plan, selections, progress)
        except FormatError as error:
            if self.residual is None:
                raise self._first_error(selections, error) from None
            self._read_without_residual(selections, progress, error)
        except OSError as error:
            if self.residual is None or is_shortage(error):
                raise
            self._read_without_residual(selections, progress, error)

    def _read_without_residual(
        self,
        selections: Sequence[Selection],
        progress: Callable[[int], None] | None,
        error: Exception,
    ) -> None:
        plan = self._planned(None)
        try:
            self._read(plan, selections, progress)
        except FormatError as other:
            raise self._first_error(selections, other) from None
        self._plan, self.residual = plan, None
        self._leave_residual(error)

    def _first_error(self, selections: Sequence[Selection], error: FormatError) -> FormatError:
        """Return the error of the earliest damaged layer: damage shows in those above it too."""
        try:
            self._read(self._planned(None), selections, None, check_each=True)
        except FormatError as first:
            return first
        return error

    def _read(
        self,
        plan: _Plan,
        selections: Sequence[Selection],
        progress: Callable[[int], None] | None,
        check_each: bool = False,
    ) -> None:
        outputs = [(s.tensor, s.start, s.stop, s.out) for s in selections]
        wanted = [output[:3] for output in outputs]
        if check_each:
            outputs = []
        with self._named(plan.layers, plan.chain):
            for window, stored in self._files.fetched(plan.chain.windows(wanted, WINDOW)):
                plan.chain.decode(window, stored, outputs, self._threads, check_each)
                if progress is not None:
                    progress(sum(length for _, _, length in window.segments))

    @property
    def exact(self) -> bool:
        """Whether what is read is what was saved, bit for bit."""
        if self.residual is not None:
            return True
        stored = self._files.stored[len(self.layers) - 1]
        if Extra.of(stored.meta).ages:
            return False
        # A record that is not lossy is exact whatever its base, but for a link to a lossy one.
        shapes = self._numbering.shapes()[: len(self.schema.tensors)]
        return not any(record["lossy"] for record in codec.describe(stored.headers, shapes))

    def check(self, progress: Callable[[int], None] | None = None) -> None:
        """Decode every record of every layer against its content sums. Raises `FormatError`."""
        nowhere = np.empty(0, np.uint8)
        plan = self._planned(self.residual, every_layer=True)
        nodes = self._numbering.nodes
        everything = [whole(t, node, nowhere) for t, node in enumerate(nodes)]
        self._read(plan, everything, progress, check_each=True)

    def arrays(
        self,
        tensors: Sequence[int] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[NDArray[Any]]:
        """Return tensors of the schema (all of them) in fresh memory."""
        nodes = self.schema.tensors
        chosen = range(len(nodes)) if tensors is None else tensors
        arrays = [new_array(nodes[t].shape, numpy_dtype(nodes[t].dtype)) for t in chosen]
        pairs = zip(chosen, arrays, strict=True)
        self.read([whole(t, nodes[t], codec.as_bytes(array)) for t, array in pairs], progress)
        return arrays

    def close(self) -> None:
        """Close the files."""
        self._closed = True
        self._files.close()
