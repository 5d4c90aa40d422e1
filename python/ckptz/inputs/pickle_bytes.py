"""The bytes of a pickle, every read checked against its end."""

from __future__ import annotations

import struct
from typing import Any

from ..dtypes import MAX_DIMENSIONS
from .base import MappedFile

__all__ = ["DamagedError", "PickleBytes", "RefusedError", "is_text", "sizes"]

_LONGEST_LINE = 4096


class DamagedError(Exception):
    """The pickle is wrong; `PickleMachine` adds the file and the offset."""


class RefusedError(Exception):
    """The pickle holds what is not stored; `PickleMachine` adds the file."""


def is_text(value: object, *options: str) -> bool:
    """Whether a value is one of these texts. Not `in`: an array's == is no truth value."""
    return type(value) is str and value in options


def sizes(value: object) -> tuple[int, ...]:
    """Check a shape, strides or the like: integers, as many as may be, none negative, none huge."""
    found: tuple[Any, ...] = value if type(value) is tuple else (None,)
    if len(found) <= MAX_DIMENSIONS and all(
        type(size) is int and 0 <= size < 1 << 60 for size in found
    ):
        return found
    raise DamagedError(f"a shape is not up to {MAX_DIMENSIONS} integers, none of them negative")


class PickleBytes:
    """Reads from `position` up to `end`; DamagedError where a read would pass that."""

    def __init__(self, mapped: MappedFile, start: int, end: int) -> None:
        self._view = mapped.view
        self.position = start
        self.end = end

    def byte(self) -> int:
        """Read the next byte."""
        if self.position >= self.end:
            raise DamagedError("it is cut short")
        self.position += 1
        return self._view[self.position - 1]

    def take(self, count: int) -> memoryview:
        """Read the next `count` bytes."""
        after = self.position + count
        if after > self.end:
            raise DamagedError("it is cut short")
        piece = self._view[self.position : after]
        self.position = after
        return piece

    def uint(self, width: int) -> int:
        """Read an unsigned integer, lowest byte first."""
        return int.from_bytes(self.take(width), "little")

    @staticmethod
    def sint(raw: memoryview) -> int:
        """Convert bytes to a signed integer, lowest first; no bytes are 0."""
        return int.from_bytes(raw, "little", signed=True)

    def sized(self, width: int) -> memoryview:
        """Read bytes with their count before them, which is checked against what is there."""
        return self.take(self.uint(width))

    def text(self, width: int) -> str:
        """Read a text with its length before it; surrogates may stand alone, as pickle allows."""
        try:
            return str(self.sized(width), "utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise DamagedError("a text is not UTF-8") from None

    def line(self) -> bytes:
        """Read a line, without its end."""
        window = self._view[self.position : min(self.end, self.position + _LONGEST_LINE)].tobytes()
        length = window.find(b"\n")
        if length < 0:
            raise DamagedError("a line does not end")
        self.position += length + 1
        return window[:length]

    def old_text(self, width: int) -> str | bytes:
        """Read a string of Python 2: text where it reads as UTF-8, else bytes."""
        raw = self.sized(width).tobytes()
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return raw

    def double(self) -> float:
        """Read a float, highest byte first."""
        return float(struct.unpack(">d", self.take(8))[0])
