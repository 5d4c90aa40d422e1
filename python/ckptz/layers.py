"""What a restore reads: tensors of layers, and the files that hold them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import codec
from .errors import FormatError
from .file import FileReader
from .schema import Schema, TensorNode
from .storage import Storage
from .store import Entry

__all__ = [
    "Selection",
    "identity",
    "nbytes_of",
    "new_array",
    "number_tensors",
    "open_layer",
    "shape_of",
    "whole",
]

Bytes = NDArray[np.uint8]

# Longer chains have their files open only while they are read: a process may have 1,024 open.
MOST_FILES = 128

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


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return fresh memory. Not `np.empty`, which takes the size 0 of an empty text for 1."""
    made: NDArray[Any] = np.ndarray(shape, dtype)
    return made


@dataclass(frozen=True, slots=True)
class Selection:
    """Elements of a tensor (number in the schema) that are wanted, and where their bytes go."""

    tensor: int
    start: int
    stop: int
    out: Bytes


def whole(tensor: int, node: TensorNode, out: Bytes) -> Selection:
    """Select all of a tensor."""
    return Selection(tensor, 0, shape_of(node)[1], out)


def number_tensors(
    layers: Sequence[Entry], schema_of: Callable[[Entry], Schema]
) -> tuple[list[TensorNode], list[list[int]]]:
    """Give every tensor of every layer a number; those of the last one come first.

    Returns the tensors by number, and for each layer the numbers of its records.
    """
    numbers: dict[Identity, int] = {}
    nodes: list[TensorNode] = []
    known: dict[bytes, list[int]] = {}
    for layer in reversed(layers):
        if layer.meta.schema not in known:
            members = []
            for node in schema_of(layer).tensors:
                number = numbers.setdefault(identity(node), len(nodes))
                if number == len(nodes):
                    nodes.append(node)
                members.append(number)
            known[layer.meta.schema] = members
    return nodes, [known[layer.meta.schema] for layer in layers]


def open_layer(
    storage: Storage, layer: Entry, files: contextlib.ExitStack, *, briefly: bool
) -> FileReader:
    """Open the file of a layer. Raises `FormatError` if that is not there any more."""
    try:
        source = files.enter_context(storage.open(layer.name))
        reader = FileReader(source)
        layer.check(reader)
    except FormatError as error:
        error.snapshot = layer.id
        raise
    if briefly:
        source.close()
        reader.source = _Briefly(storage, layer.name, source.path, source.size)
    return reader


@dataclass(frozen=True, slots=True)
class _Briefly:
    """A file that is open only while it is read."""

    storage: Storage
    name: str
    path: Path | str
    size: int

    def read(self, offset: int, length: int) -> Bytes:
        with self.storage.open(self.name) as source:
            return source.read(offset, length)
