"""What a restore reads: tensors of layers, and the files that hold them."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from . import codec
from .errors import FormatError
from .file import FileReader
from .metadata import Stored
from .schema import Schema, TensorNode
from .storage import Listed, Storage
from .store import Entry

__all__ = [
    "LayerFiles",
    "Numbering",
    "SchemaOf",
    "Selection",
    "identity",
    "nbytes_of",
    "new_array",
    "shape_of",
    "snapshot_of",
    "whole",
]

Bytes = NDArray[np.uint8]

# Longer chains have their files open only while they are read: a process may have 1,024 open.
MOST_FILES = 128
# Windows that are asked for before they are needed, where that is done beside other work.
AHEAD = 2

Identity = tuple[Any, ...]
# Bytes, or the payload that has them.
_Content = codec.Bytes | codec.Payload


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


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return fresh memory. Not `np.empty`, which takes the size 0 of an empty text for 1."""
    made: NDArray[Any] = np.ndarray(shape, dtype)
    return made


class Selection(msgspec.Struct, frozen=True):
    """Elements of a tensor (number in the schema) that are wanted, and where their bytes go."""

    tensor: int
    start: int
    stop: int
    out: Bytes


def whole(tensor: int, node: TensorNode, out: Bytes) -> Selection:
    """Select all of a tensor."""
    return Selection(tensor, 0, shape_of(node)[1], out)


class Numbering:
    """Numbers for the tensors of several schemas: the same tensor has the same one."""

    def __init__(self) -> None:
        """Begin without any."""
        self.nodes: list[TensorNode] = []
        self._numbers: dict[Identity, int] = {}
        self._known: dict[bytes, list[int]] = {}

    def members(self, schema: Schema) -> list[int]:
        """Return the numbers of a schema's tensors, new ones for those that are new."""
        known = self._known.get(schema.raw)
        if known is None:
            known = self._known[schema.raw] = [self._number(node) for node in schema.tensors]
        return known

    def _number(self, node: TensorNode) -> int:
        number = self._numbers.setdefault(identity(node), len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return number

    def shapes(self) -> list[tuple[int, int]]:
        """Return element types and counts by number, as the core takes them."""
        return [shape_of(node) for node in self.nodes]


def snapshot_of(stored: Stored, members: list[int], residual: bool = False) -> codec.FileSnapshot:
    """Return what the core has to know of a snapshot whose tensors have these numbers."""
    place = codec.OF_FULL if stored.meta.full else codec.OF_DELTA
    if residual:
        place = codec.OF_RESIDUAL
    return stored.headers, members, list(stored.absent), place


# Of an entry.
SchemaOf = Callable[[Entry], Schema]


class LayerFiles:
    """The files that hold some layers, each opened once."""

    def __init__(self, storage: Storage, *, briefly: bool) -> None:
        """Begin without any. briefly: files are open only while they are read."""
        self.readers: list[FileReader] = []
        self.path: list[tuple[int, int]] = []
        """Of each layer: number of its file, and its place in that."""
        self.stored: list[Stored] = []
        self._storage = storage
        self._briefly = briefly
        self._stack = contextlib.ExitStack()
        self._numbers: dict[Listed, int] = {}
        self._entries: list[tuple[Entry, ...]] = []

    def open(self, layers: Sequence[Entry]) -> None:
        """Open the files of more layers. Raises `FormatError` if they are not there any more."""
        new = {layer.listed: layer for layer in layers if layer.listed not in self._numbers}
        begin = self._storage.begin
        opening = {one: begin(partial(self._reader, layer)) for one, layer in new.items()}
        for layer in layers:
            try:
                if layer.listed not in self._numbers:
                    self._add(layer.listed, opening[layer.listed]())
                number = self._numbers[layer.listed]
                stored = layer.check(self.readers[number])
            except FormatError as error:
                error.snapshot = layer.id
                raise
            self.path.append((number, self.readers[number].snapshots.index(stored)))
            self.stored.append(stored)

    def _add(self, listed: Listed, reader: FileReader) -> None:
        self._entries.append(Entry.all_of(listed, reader))
        self._numbers[listed] = len(self.readers)
        self.readers.append(reader)

    def _reader(self, layer: Entry) -> FileReader:
        source = self._stack.enter_context(self._storage.open(layer.name))
        reader = FileReader(source)
        if self._briefly:
            source.close()
            reader.source = _Briefly(self._storage, layer.name, source.path, source.size)
        return reader

    def headers(
        self, numbering: Numbering, schema_of: SchemaOf, files: int
    ) -> list[list[codec.FileSnapshot]]:
        """Return all that the core has to know of the snapshots in the first so many files."""
        return [
            [
                snapshot_of(stored, numbering.members(schema_of(entry)))
                for stored, entry in zip(reader.snapshots, entries, strict=True)
            ]
            for reader, entries in zip(self.readers[:files], self._entries, strict=False)
        ]

    def fetched(
        self, windows: Sequence[codec.Window]
    ) -> Iterator[tuple[codec.Window, list[_Content]]]:
        """Yield windows with the bytes that they need, of which those of the next are under way.

        What lies in large pieces is left to the core: it has the files instead.
        """
        waiting: deque[tuple[codec.Window, list[Callable[[], _Content]]]] = deque()
        for window in windows:
            waiting.append((window, self._begin(window)))
            if len(waiting) > AHEAD:
                ready, reads = waiting.popleft()
                yield ready, [read() for read in reads]
        for ready, reads in waiting:
            yield ready, [read() for read in reads]

    def _begin(self, window: codec.Window) -> list[Callable[[], _Content]]:
        begun: list[Callable[[], _Content]] = []
        for (file, offset, length), apart in zip(window.segments, window.apart, strict=True):
            reader = self.readers[file]
            payload = reader.payload() if apart else None
            if payload is None:
                begun.append(self._storage.begin(partial(reader.read, offset, length)))
            else:
                begun.append(partial(_itself, payload))
        return begun

    def close(self) -> None:
        """Close the files."""
        self._stack.close()


def _itself(payload: codec.Payload) -> codec.Payload:
    return payload


class _Briefly(msgspec.Struct, frozen=True):
    """A file that is open only while it is read."""

    storage: Storage
    name: str
    path: Path | str
    size: int

    def read(self, offset: int, length: int) -> Bytes:
        with self.storage.open(self.name) as source:
            return source.read(offset, length)

    def payload(self, start: int) -> None:
        """Return nothing: that would be open for longer."""
