"""Bounds on every entry's error, looked at again where the original is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import BoundError
from .policy import Rule

__all__ = ["check_bounds"]

# Entries that are compared at once.
_PIECE = 1 << 18

_Floats = NDArray[np.float64]


def check_bounds(rule: Rule, path: str, restored: NDArray[Any], original: NDArray[Any]) -> None:
    """Compare a tensor with its original, both of one float dtype and shape, entry by entry.

    Raises `BoundError` with key path, largest error and bound where a finite entry of the original
    is farther off than the rule allows.
    """
    for name, most in (("max_error", rule.max_error), ("max_rel_error", rule.max_rel_error)):
        if most is None:
            continue
        largest, beyond = 0.0, False
        for error, size in _errors(restored, original):
            # Rounding keeps order: what is within the bound is never found beyond it.
            beyond |= bool((error > (most if name == "max_error" else most * size)).any())
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                shown = error if name == "max_error" else error / size
            largest = max(largest, float(np.fmax.reduce(shown, initial=0.0)))
        if beyond:
            kind = "error" if name == "max_error" else "relative error"
            raise BoundError(f"{path}: a largest {kind} of {largest:.6g}, above {name}={most:.6g}")


def _errors(restored: NDArray[Any], original: NDArray[Any]) -> Iterator[tuple[_Floats, _Floats]]:
    """Yield |r - u| and |u| of the entries with a finite u, in pieces."""
    for start in range(0, original.size, _PIECE):
        r, u = (
            array.reshape(-1)[start : start + _PIECE].astype(np.float64)
            for array in (restored, original)
        )
        finite = np.isfinite(u)
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(r[finite] - u[finite])
        # What is no number is as far off as can be.
        yield np.where(np.isnan(error), np.inf, error), np.abs(u[finite])
