"""The bytes of an array, whatever its layout."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Sink", "write_array"]

_PIECE = 1 << 24


class Sink(Protocol):
    """What takes bytes: a file, or a member of one."""

    def write(self, data: memoryview, /) -> object:
        """Take all of `data`."""
        ...


def write_array(file: Sink, array: npt.NDArray[Any]) -> None:
    """Write the bytes of an array in C order: as it is if contiguous, else in bounded pieces."""
    if array.nbytes > _PIECE and not array.flags.c_contiguous:
        rows = max(1, _PIECE // (array.nbytes // len(array)))
        for first in range(0, len(array), rows):
            part = array[first : first + rows]
            write_array(file, part if len(part) < len(array) else part[0])
    elif array.nbytes:
        flat = np.ascontiguousarray(array).reshape(-1)
        file.write(flat.view(np.uint8).data)
