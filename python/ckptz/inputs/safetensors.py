"""Reads .safetensors files: the header parsed here, the tensors as views of mapped pages.

No `safetensors` package: its NumPy side copies every tensor and has no bfloat16.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import MAX_BYTES, MAX_DIMENSIONS
from ..errors import UnsupportedTypeError
from .base import Bytes, InputFile, MappedFile, as_array, brief
from .dtypes import SAFETENSORS, bits_of

__all__ = ["HEADER_LIMIT", "SafetensorsFile", "looks_like_safetensors"]

HEADER_LIMIT = 100_000_000  # the reference's


def looks_like_safetensors(mapped: MappedFile) -> bool:
    """Tell whether the first bytes are a possible header length and the start of a header."""
    length = int.from_bytes(mapped.view[:8], "little")
    return length <= min(HEADER_LIMIT, mapped.size - 8) and bytes(mapped.view[8:9]) == b"{"


@dataclass(frozen=True)
class _Entry:
    name: str
    code: str
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsFile(InputFile):
    """A .safetensors file. Its state is a flat dict, name -> array, in the order of the bytes."""

    def __init__(self, mapped: MappedFile) -> None:
        """Read the header. Raises FormatError where it, or the cover of the bytes, is wrong."""
        super().__init__(mapped)
        header, self._base = _read_header(mapped)
        self._metadata = _read_metadata(mapped, header.pop("__metadata__", {}))
        self._entries = [_read_entry(mapped, name, entry) for name, entry in header.items()]
        self._entries.sort(key=lambda entry: (entry.start, entry.end))
        _check_cover(mapped, self._entries, self._base)

    @property
    def metadata(self) -> dict[str, str]:
        """The file's `__metadata__`."""
        return dict(self._metadata)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return name -> array. bfloat16 and the float8 kinds have ml_dtypes' dtypes.

        F4 is unpacked, low half byte first as torch packs it, and so is a copy. The order of the
        F6 kinds' bits is nowhere specified: UnsupportedTypeError.
        """
        mapped = self._pages()
        return {entry.name: self._array(mapped, entry) for entry in self._entries}

    def _array(self, mapped: MappedFile, entry: _Entry) -> npt.NDArray[Any]:
        dtype = SAFETENSORS[entry.code]
        start = self._base + entry.start
        try:
            if entry.code.startswith("F6_"):
                raise UnsupportedTypeError(
                    f"{self.path}: tensor {brief(entry.name)} is {entry.code}, whose packing the "
                    "format does not specify; save it as F8 or F16"
                )
            if entry.code == "F4":
                halves = mapped.data[start : self._base + entry.end]
                return _unpack_nibbles(halves).view(dtype).reshape(entry.shape)
            return as_array(mapped.data, start, dtype, entry.shape)
        except ValueError as error:
            raise mapped.error(start, f"tensor {brief(entry.name)}: {error}") from None


def _unpack_nibbles(packed: Bytes) -> Bytes:
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1)


def _read_header(mapped: MappedFile) -> tuple[dict[str, Any], int]:
    """Return the header as a dict, and where the tensors' bytes start."""
    if mapped.size < 8:
        raise mapped.error(0, "too short for a .safetensors header")
    length = int.from_bytes(mapped.view[:8], "little")
    if length > HEADER_LIMIT:
        raise mapped.error(0, f"a header of {length} bytes is over the limit of {HEADER_LIMIT}")
    if 8 + length > mapped.size:
        raise mapped.error(0, f"the file ends inside its header of {length} bytes")
    if bytes(mapped.view[8:9]) != b"{":
        raise mapped.error(8, "the header does not start with {")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        unique = dict(items)
        if len(unique) != len(items):
            raise ValueError("a key appears twice")
        return unique

    try:
        header = json.loads(
            str(mapped.view[8 : 8 + length], "utf-8"),
            object_pairs_hook=pairs,
            parse_int=_parse_int,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
        for name in header:
            name.encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise mapped.error(8, f"the header is not valid: {_one_line(error)}") from None
    return header, 8 + length


def _parse_int(digits: str) -> int:
    # Checked before int(), which is quadratic in the number of digits.
    if len(digits) > 15 or digits[0] == "-":
        raise ValueError(f"the number {digits[:20]} is out of range")
    return int(digits)


def _refuse_number(digits: str) -> None:
    raise ValueError(f"the number {digits[:20]} is not an integer")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _read_metadata(mapped: MappedFile, value: object) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        try:
            "".join([*value, *value.values()]).encode()
            return value
        except UnicodeEncodeError:
            pass
    raise mapped.error(8, "__metadata__ is not a map of text to text")


def _read_entry(mapped: MappedFile, name: str, entry: object) -> _Entry:
    what = f"tensor {brief(name)}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise mapped.error(8, f"{what} has not exactly a dtype, a shape and data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in SAFETENSORS:
        raise mapped.error(8, f"{what} has the unknown dtype {brief(code)}")
    if not _integers(shape) or not _integers(offsets) or len(offsets) != 2:
        raise mapped.error(8, f"{what} has a shape or data_offsets that are not integers")
    start, end = offsets
    bits = math.prod(shape) * bits_of(code) if len(shape) <= MAX_DIMENSIONS else math.inf
    if bits > 8 * MAX_BYTES:
        raise mapped.error(8, f"{what} is larger than {MAX_DIMENSIONS} dimensions or 2^48 bytes")
    if bits % 8 or end - start != bits // 8:
        raise mapped.error(8, f"{what} has {end - start} bytes where {bits / 8:g} are needed")
    return _Entry(name, code, tuple(shape), start, end)


def _integers(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _check_cover(mapped: MappedFile, entries: list[_Entry], base: int) -> None:
    """Check that the tensors cover the rest of the file: no hole, no overlap."""
    here = 0
    for entry in entries:
        if entry.start != here:
            kind = "a hole" if entry.start > here else "an overlap"
            raise mapped.error(base + here, f"{kind} before tensor {brief(entry.name)}")
        here = entry.end
    if base + here != mapped.size:
        what = f"the file has {mapped.size} bytes where its header needs {base + here}"
        raise mapped.error(min(base + here, mapped.size), what)
