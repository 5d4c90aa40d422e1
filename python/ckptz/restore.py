"""Bringing tensors back: a chain of files is read window by window and decoded by the core."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import codec
from .dtypes import numpy_dtype
from .errors import ChecksumError, CkptzWarning, FormatError
from .file import PAYLOAD_AT, FileReader
from .schema import Schema, TensorNode
from .snapshot import resolve_values
from .storage import LocalStorage
from .store import Entry, Store

__all__ = ["OpenChain", "Selection", "whole"]

Bytes = NDArray[np.uint8]

# Bytes, stored and decoded, that are worked on at once.
WINDOW = 16 << 20

Identity = tuple[Any, ...]


def identity(node: TensorNode) -> Identity:
    """Return what a record's base is found by (format.md, section 4)."""
    return (node.keys, node.dtype, node.shape, node.global_shape, node.offset)


def shape_of(node: TensorNode) -> tuple[int, int]:
    """Return element type and count of a tensor, as the core takes them."""
    element = codec.element_number(node.element_type, node.itemsize)
    return element, codec.element_count(element, nbytes_of(node))


def nbytes_of(node: TensorNode) -> int:
    """Return the bytes of a tensor."""
    return math.prod(node.shape) * node.itemsize


@dataclass(frozen=True, slots=True)
class Selection:
    """Elements of a tensor (number in the schema) that are wanted, and where their bytes go."""

    tensor: int
    start: int
    stop: int
    out: Bytes


class OpenChain:
    """The files that lead to one snapshot, open, with their record headers read.

    A context manager. With a residual as the last layer lossy tensors are exact; a damaged
    residual is warned of and left out.
    """

    def __init__(
        self,
        storage: LocalStorage,
        chain: Sequence[Entry],
        schema_of: Callable[[Entry], Schema],
        *,
        residual: Entry | None = None,
        threads: int = 1,
        strict: bool = False,
    ) -> None:
        """Open a chain, oldest first. strict: a damaged residual is an error.

        Raises `FormatError`, `MissingSnapshotError` or `OSError`.
        """
        self.entry = chain[-1]
        self.schema = schema_of(self.entry)
        self.layers = list(chain)
        self.residual = residual
        self._storage = storage
        self._schema_of = schema_of
        self._threads = threads
        self._files = contextlib.ExitStack()
        self._readers: list[FileReader] = []
        try:
            self.values = _resolve(storage, chain, self.schema)
            if residual is not None:
                try:
                    self._open(residual)
                except (FormatError, OSError) as error:
                    if strict:
                        raise
                    self._leave_residual(error)
            if self.residual is None:
                self._open(None)
        except BaseException:
            self._files.close()
            raise

    @classmethod
    def of_store(
        cls,
        store: Store,
        entry: Entry,
        *,
        residual: Entry | None = None,
        threads: int = 1,
        strict: bool = False,
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
        )

    def _open(self, residual: Entry | None) -> None:
        chain = [layer for layer in self.layers if layer is not self.residual]
        self.layers = chain if residual is None else [*chain, residual]
        members = self._number_tensors(chain)
        if residual is not None:
            members.append(members[-1])
        headers = [layer.stored.headers for layer in self.layers]
        with self._named():
            shapes = [shape_of(node) for node in self._nodes]
            self._chain = codec.Chain(shapes, list(zip(headers, members, strict=True)))
        for layer, length in zip(self.layers, self._chain.payload_bytes(), strict=True):
            if layer.payload_bytes != length:
                raise FormatError(
                    f"{self._storage / layer.name}: offset {PAYLOAD_AT}: the payload has "
                    f"{layer.payload_bytes} bytes, its records {length}"
                )
        self._readers += [self._reader(layer) for layer in self.layers[len(self._readers) :]]

    def _number_tensors(self, chain: Sequence[Entry]) -> list[list[int]]:
        """Give every tensor of every layer a number; those of the last one come first."""
        numbers: dict[Identity, int] = {}
        self._nodes: list[TensorNode] = []
        known: dict[bytes, list[int]] = {}
        for layer in reversed(chain):
            if layer.meta.schema not in known:
                members = []
                for node in self._schema_of(layer).tensors:
                    number = numbers.setdefault(identity(node), len(self._nodes))
                    if number == len(self._nodes):
                        self._nodes.append(node)
                    members.append(number)
                known[layer.meta.schema] = members
        return [known[layer.meta.schema] for layer in chain]

    def _reader(self, layer: Entry) -> FileReader:
        source = self._files.enter_context(self._storage.open(layer.name))
        reader = FileReader(source)
        if reader.snapshots[0].id != layer.id:
            raise FormatError(f"{source.path}: the file has been replaced since the store was read")
        return reader

    def _leave_residual(self, error: Exception) -> None:
        warnings.warn(
            f"the residual of step {self.entry.meta.step} is lost, the reconstruction is used: "
            f"{error}",
            CkptzWarning,
            stacklevel=6,
        )
        self.layers = [layer for layer in self.layers if layer is not self.residual]
        self.residual = None

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Turn the core's errors into ones that name file, tensor and offset."""
        try:
            yield
        except codec.RecordError as error:
            message, checksum, layer, tensor, chunk, offset = error.args
            where = str(self._storage / self.layers[layer or 0].name)
            if chunk is not None and layer is not None and tensor is not None:
                start = self._chain.chunk_offset(layer, tensor, chunk) or 0
                where += f": offset {PAYLOAD_AT + start + (offset or 0)}"
            if tensor is not None:
                where += f": tensor {self._nodes[tensor].path}"
            found = (ChecksumError if checksum else FormatError)(f"{where}: {message}")
            found.snapshot = None if layer is None else self.layers[layer].id
            raise found from None

    def read(
        self, selections: Sequence[Selection], progress: Callable[[int], None] | None = None
    ) -> None:
        """Fill the selections. Raises `FormatError`; what they hold then means nothing."""
        try:
            self._read(selections, progress)
        except (FormatError, OSError) as error:
            if self.residual is None:
                raise
            self._leave_residual(error)
            self._open(None)
            self._read(selections, progress)

    def _read(
        self,
        selections: Sequence[Selection],
        progress: Callable[[int], None] | None,
        check_each: bool = False,
    ) -> None:
        outputs = [(s.tensor, s.start, s.stop, s.out) for s in selections]
        wanted = [output[:3] for output in outputs]
        if check_each:
            outputs = []
        with self._named():
            for window in self._chain.windows(wanted, WINDOW):
                stored = [self._readers[layer].read(at, n) for layer, at, n in window.segments]
                self._chain.decode(window, stored, outputs, self._threads, check_each)
                if progress is not None:
                    progress(sum(piece.size for piece in stored))

    def check(self, progress: Callable[[int], None] | None = None) -> None:
        """Decode every record of every layer against its content sums. Raises `FormatError`."""
        nowhere = np.empty(0, np.uint8)
        everything = [whole(t, node, nowhere) for t, node in enumerate(self._nodes)]
        self._read(everything, progress, check_each=True)

    def arrays(
        self,
        tensors: Sequence[int] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[NDArray[Any]]:
        """Return tensors of the schema (all of them) in fresh memory."""
        nodes = self.schema.tensors
        chosen = range(len(nodes)) if tensors is None else tensors
        arrays = [np.empty(nodes[t].shape, numpy_dtype(nodes[t].dtype)) for t in chosen]
        pairs = zip(chosen, arrays, strict=True)
        self.read([whole(t, nodes[t], codec.as_bytes(array)) for t, array in pairs], progress)
        return arrays

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def __enter__(self) -> OpenChain:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _resolve(storage: LocalStorage, chain: Sequence[Entry], schema: Schema) -> list[Any]:
    try:
        return resolve_values([layer.meta for layer in chain], schema.value_count)
    except FormatError as error:
        raise FormatError(f"{storage / chain[-1].name}: {error}") from error


def whole(tensor: int, node: TensorNode, out: Bytes) -> Selection:
    """Select all of a tensor."""
    return Selection(tensor, 0, shape_of(node)[1], out)
