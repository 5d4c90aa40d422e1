"""What all input files share: mapped pages, errors that name the file, and the interface."""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..closing import Closing
from ..errors import FormatError

__all__ = ["Bytes", "InputFile", "MappedFile", "as_array", "brief"]

Bytes = npt.NDArray[np.uint8]

_LONGEST_NAME = 120


def brief(name: object) -> str:
    """Show a name from a file as one short line for a message, whatever it holds."""
    text = ascii(name)
    return text if len(text) <= _LONGEST_NAME else text[:_LONGEST_NAME] + "..."


class MappedFile:
    """The bytes of a file, mapped read-only; the pages stay as long as any array shows them.

    Nobody may cut the file short meanwhile: the system kills a process that reads lost pages.
    """

    def __init__(self, path: Path) -> None:
        """Map `path`. Raises FormatError where it is empty, OSError where it cannot be read."""
        self.path = path
        with open(path, "rb") as file:
            if not file.seek(0, 2):
                raise FormatError(f"{path}: offset 0: the file is empty")
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.data: Bytes = np.frombuffer(pages, np.uint8)
        self.view = memoryview(pages)
        self.size = len(pages)

    def error(self, offset: int, what: str) -> FormatError:
        """Make a FormatError that names this file and the offset."""
        return FormatError(f"{self.path}: offset {offset}: {what}")


def as_array(
    data: Bytes,
    offset: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    order: str = "C",
) -> npt.NDArray[Any]:
    """View `data` from `offset`, in bytes, as an array. ValueError where the bytes do not hold it.

    NumPy checks the bounds itself, with strides too, so that no view can leave the buffer.
    """
    column_first = order == "F"
    if 0 in shape:
        return np.empty(shape, dtype, order="F" if column_first else "C")
    made: npt.NDArray[Any]
    if strides is not None:
        made = np.ndarray(shape, dtype, data, offset, strides)
    else:
        made = np.ndarray(shape, dtype, data, offset, order="F" if column_first else "C")
    return made


class InputFile(Closing, ABC):
    """A checkpoint file of the user, open for reading: a context manager.

    Arrays of its state stay valid after it is closed: they keep the mapped pages themselves.
    """

    def __init__(self, mapped: MappedFile) -> None:
        self.path = mapped.path
        self._mapped: MappedFile | None = mapped

    @property
    def metadata(self) -> dict[str, str]:
        """Text that the file holds beside its state; only .safetensors has any."""
        return {}

    @abstractmethod
    def state(self) -> object:
        """Return the state, its arrays read-only views of the mapped pages where the file allows.

        They may be unaligned, and big-endian or Fortran-ordered where the file has them so.
        Raises FormatError for damage, and UnsupportedTypeError for what cannot be a state.
        """

    def close(self) -> None:
        """Let go of the pages; arrays that were handed out keep them."""
        self._mapped = None

    def _pages(self) -> MappedFile:
        if self._mapped is None:
            raise ValueError(f"{self.path} is closed")
        return self._mapped
