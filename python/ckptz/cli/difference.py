"""How far a restored tensor is from the original: in bits, at most, and as a record's error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..state import contiguous

__all__ = ["Difference", "measure"]

# Entries that are compared at once.
_PIECE = 1 << 18

_Floats = NDArray[np.float64]


@dataclass(slots=True)
class Difference:
    """How far a restored tensor is from the original."""

    exact: bool
    """Whether it must be the same bit for bit."""
    largest: float | None = None
    """Largest absolute error of a finite entry; None for what is no number."""
    error: float | None = None
    """|restored - original| / |original - before| over finite entries, 0/0 = 0."""
    problem: str | None = None


def measure(
    restored: NDArray[Any],
    before: NDArray[Any] | None,
    original: NDArray[Any],
    exact: bool,
) -> Difference:
    """Compare arrays of one dtype and shape; no `before`: it counts as zero."""
    original = contiguous(original)
    pieces = _Pieces()
    for start in range(0, restored.size, _PIECE):
        part = slice(start, start + _PIECE)
        old = None if before is None else before.reshape(-1)[part]
        pieces.add(restored.reshape(-1)[part], old, original.reshape(-1)[part])
    return pieces.difference(exact, restored.size)


class _Pieces:
    """Sums over the pieces of a tensor."""

    def __init__(self) -> None:
        self.differing = self.not_finite = 0
        self.numbers = True
        self.largest = self.squares = self.against = 0.0

    def add(
        self, restored: NDArray[Any], before: NDArray[Any] | None, original: NDArray[Any]
    ) -> None:
        """Compare one piece."""
        same = (_bits(restored) == _bits(original)).all(axis=1)
        self.differing += int(same.size - same.sum())
        r, u = _floats(restored), _floats(original)
        if r is None or u is None:
            self.numbers = False
            return
        p = np.zeros_like(u) if before is None else _floats(before)
        assert p is not None
        finite = np.isfinite(r) & np.isfinite(u)
        # Complex numbers are two floats an entry.
        whole = finite.reshape(same.size, -1).all(axis=1)
        self.not_finite += int((~whole & ~same).sum())
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.where(finite, r - u, 0.0)
            self.largest = max(self.largest, float(np.abs(error).max(initial=0.0)))
            finite &= np.isfinite(p)
            self.squares += float(np.square(error[finite]).sum())
            self.against += float(np.square((u - p)[finite]).sum())

    def difference(self, exact: bool, entries: int) -> Difference:
        """Return what was found."""
        problem = None
        if exact and self.differing:
            problem = f"stored exactly, but {self.differing} of {entries} entries differ"
        elif self.not_finite:
            problem = f"{self.not_finite} entries that are not finite differ"
        if not self.numbers:
            return Difference(exact, problem=problem)
        return Difference(exact, self.largest, _ratio(self.squares, self.against), problem)


def _ratio(squares: float, against: float) -> float:
    if squares == 0:
        return 0.0
    return math.sqrt(squares / against) if against else math.inf


def _bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    """View an array as one row of bytes for each entry."""
    if array.itemsize == 0:
        return np.empty((array.size, 0), np.uint8)
    rows: NDArray[np.uint8] = array.view(np.uint8).reshape(array.size, array.itemsize)
    return rows


def _floats(array: NDArray[Any]) -> _Floats | None:
    """Return an array's values in float64, None if it holds no numbers."""
    if array.dtype.kind in "SUMm":
        return None
    if array.dtype.kind == "c":
        return array.view(array.real.dtype).astype(np.float64)
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        return None
