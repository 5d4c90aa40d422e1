"""Lazy tensors: what `CheckpointManager.open` and `safe_open` give."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import codec, state
from .closing import Closing
from .dtypes import numpy_dtype
from .errors import MissingKeyError
from .layers import Selection, nbytes_of, new_array, shape_of
from .restore import OpenChain
from .schema import TensorNode

__all__ = ["Snapshot", "TensorView"]


class TensorView:
    """One tensor of a snapshot; indexing it reads and decodes only the chunks that it needs."""

    def __init__(self, chain: OpenChain, number: int, path: str, as_numpy: bool) -> None:
        """Made by `Snapshot`."""
        self._chain = chain
        self._number = number
        self._node: TensorNode = chain.schema.tensors[number]
        self._as_numpy = as_numpy
        self.path = path
        """Key path."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape."""
        return self._node.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        return numpy_dtype(self._node.dtype)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._node.shape)

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(np.prod(self._node.shape, dtype=object))

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return nbytes_of(self._node)

    def numpy(self) -> NDArray[Any]:
        """Read the whole tensor into a fresh NumPy array."""
        return self._rows(0, self.shape[0]) if self.shape else self._whole()

    def _whole(self) -> NDArray[Any]:
        return self._chain.arrays([self._number])[0]

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        """Read rows, start <= stop, as an array of their own."""
        rest = self.shape[1:]
        array = new_array((stop - start, *rest), self.dtype)
        total = shape_of(self._node)[1]
        per_row = total // self.shape[0] if self.shape[0] else 0
        out = codec.as_bytes(array)
        self._chain.read([Selection(self._number, start * per_row, stop * per_row, out)])
        return array

    def __getitem__(self, index: Any) -> Any:
        first, rest = index, ()
        if isinstance(index, tuple):
            first, rest = (index[0], index[1:]) if index else (Ellipsis, ())
        if self.shape and isinstance(first, slice):
            found = self._slice(first)
            everything: tuple[Any, ...] = (slice(None), *rest)
            found = found[everything] if rest else found
        elif self.shape and _is_integer(first):
            row = operator.index(first)
            if not -self.shape[0] <= row < self.shape[0]:
                raise IndexError(f"{self.path}: row {row} of {self.shape[0]}")
            row %= self.shape[0]
            only: tuple[Any, ...] = (0, *rest)
            found = self._rows(row, row + 1)[only]
        else:
            found = self.numpy()[index]
        return self._leaf(found)

    def _slice(self, rows: slice) -> NDArray[Any]:
        start, stop, step = rows.indices(self.shape[0])
        chosen = range(start, stop, step)
        if not chosen:
            return self._rows(0, 0)
        low, high = min(chosen[0], chosen[-1]), max(chosen[0], chosen[-1]) + 1
        read = self._rows(low, high)
        return read[:: abs(step)] if step > 0 else read[::-1][:: abs(step)]

    def _leaf(self, array: Any) -> Any:
        if not isinstance(array, np.ndarray):
            entry = new_array((), self.dtype)
            entry[()] = array
            array = entry
        return state.tensor(self._node, state.contiguous(array), as_numpy=self._as_numpy)

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a lazy tensor cannot be an array without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self.path}: a tensor without dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        return f"TensorView({self.path!r}, shape={self.shape}, dtype={self._node.dtype})"


def _is_integer(index: object) -> bool:
    return isinstance(index, int | np.integer) and not isinstance(index, bool | np.bool_)


class Snapshot(Closing, Mapping[str, TensorView]):
    """The tensors of one snapshot by key path, each read when it is used.

    A context manager; the files stay open until it is closed or forgotten. `plain` has the plain
    values.
    """

    def __init__(self, chain: OpenChain, as_numpy: bool = False) -> None:
        """Take over an open chain."""
        self._chain = chain
        self._as_numpy = as_numpy
        leaves = list(chain.schema.leaves())
        values = chain.plain_values()
        self._numbers = {leaf.path: leaf.number for leaf in leaves if leaf.kind != "value"}
        self.plain: dict[str, object] = {
            leaf.path: values[leaf.number] for leaf in leaves if leaf.kind == "value"
        }
        """Plain values by key path."""

    @property
    def step(self) -> int:
        """The step that was saved."""
        return self._chain.entry.meta.step

    def __getitem__(self, path: str) -> TensorView:
        try:
            number = self._numbers[path]
        except KeyError:
            raise MissingKeyError(f"step {self.step} has no tensor {path!r}") from None
        return TensorView(self._chain, number, path, self._as_numpy)

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, path: object) -> bool:
        return path in self._numbers

    # Each is a place to read from: compared by content, it would be as its own copy is not.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def close(self) -> None:
        """Close the files."""
        self._chain.close()

    def __repr__(self) -> str:
        return f"<Snapshot of step {self.step}: {len(self)} tensors>"
