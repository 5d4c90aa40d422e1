"""Reads .npy and .npz files as views of mapped pages, never unpickling.

The header of an .npy is matched here as text: NumPy's own parser goes through Python's, which a
hostile header can drive into deep recursion.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import MAX_BYTES, MAX_DIMENSIONS
from ..errors import FormatError, UnsupportedTypeError
from .base import Bytes, InputFile, MappedFile, as_array, brief
from .dtypes import ML_DTYPES
from .zip_members import ZipMembers

__all__ = ["NPY_MAGIC", "NpyFile", "NpzFile", "carrier_of", "plain_dtype"]

NPY_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 1 << 16

_DESCR = re.compile(r"[<>|=]?(?:[?bhilqBHILQefdgFDG]|[biufcSUV]\d{1,9}|[mM]8(?:\[\w{1,16}\])?)")
_PAIR = r"\s*['\"](?:{})['\"]\s*:\s*{}\s*,?"
_FIELDS = {
    "descr": re.compile(_PAIR.format("descr", r"['\"]([^'\"]*)['\"]")),
    "fortran_order": re.compile(_PAIR.format("fortran_order", "(True|False)")),
    "shape": re.compile(_PAIR.format("shape", r"\(([\d,L\s]*)\)")),
}


def plain_dtype(text: str) -> np.dtype[Any]:
    """Make a dtype from NumPy's type string; none with fields or Python objects.

    Raises UnsupportedTypeError (no file in its message) for those, ValueError for no dtype at all.
    """
    if text.strip("<>|=") in ("O", "O8"):
        raise UnsupportedTypeError("Python objects (dtype object) are not stored")
    if not _DESCR.fullmatch(text):
        raise ValueError(f"{brief(text)} is not a dtype")
    try:
        return np.dtype(text)
    except (TypeError, ValueError):
        raise ValueError(f"{brief(text)} is not a dtype that NumPy has here") from None


def carrier_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the unsigned integer that an .npz holds in place of one of ml_dtypes' dtypes."""
    return np.dtype(f"<u{dtype.itemsize}")


@dataclass(frozen=True)
class _Header:
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: str
    length: int

    @property
    def total(self) -> int:
        """Bytes of the whole .npy, header and array."""
        return self.length + math.prod(self.shape) * self.dtype.itemsize


def _read_header(data: Bytes) -> _Header:
    """Read an .npy's header. Raises ValueError or UnsupportedTypeError, neither with a file."""
    start = bytes(data[:12])
    if start[:6] != NPY_MAGIC or len(start) < 10:
        raise ValueError("not an .npy: its magic is missing")
    if start[6:8] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise ValueError(f"version {start[6]}.{start[7]} of .npy is not known")
    size, base = (2, 10) if start[6] == 1 else (4, 12)
    length = base + int.from_bytes(start[8 : 8 + size], "little")
    if length > min(len(data), _LONGEST_HEADER):
        raise ValueError(f"a header of {length} bytes is longer than the file or the limit")
    text = bytes(data[base:length]).decode("latin-1").strip()
    values = _match_fields(text)
    dtype = plain_dtype(values["descr"])
    shape = tuple(int(item.strip(" L")) for item in values["shape"].split(",") if item.strip())
    if len(shape) > MAX_DIMENSIONS or math.prod(shape) * dtype.itemsize > MAX_BYTES:
        raise ValueError(f"the array is larger than {MAX_DIMENSIONS} dimensions or 2^48 bytes")
    order = "F" if values["fortran_order"] == "True" else "C"
    return _Header(dtype, shape, order, length)


def _match_fields(text: str) -> dict[str, str]:
    """Find the three values of the header's dict, each once, in any order, and nothing else."""
    values: dict[str, str] = {}
    at = 1
    while text.startswith("{") and len(values) < 3:
        found = [(name, match) for name, rule in _FIELDS.items() if (match := rule.match(text, at))]
        if not found or found[0][0] in values:
            break
        name, match = found[0]
        values[name], at = match.group(1), match.end()
    if len(values) == 3 and text[at:].strip() == "}":
        return values
    if re.search(r"['\"]descr['\"]\s*:\s*\[", text):
        raise UnsupportedTypeError("an array with fields (structured dtype) is not stored")
    raise ValueError("its header is damaged")


def _open_array(data: Bytes, header: _Header) -> npt.NDArray[Any]:
    if header.total != len(data):
        raise ValueError(f"{len(data)} bytes where the header needs {header.total}")
    return as_array(data, header.length, header.dtype, header.shape, order=header.order)


class NpyFile(InputFile):
    """An .npy file: its state is one array, a view in the file's byte order and layout."""

    def __init__(self, mapped: MappedFile) -> None:
        """Read the header. Raises FormatError, or UnsupportedTypeError for objects and fields."""
        super().__init__(mapped)
        self.state()

    def state(self) -> npt.NDArray[Any]:
        """Return the array."""
        mapped = self._pages()
        return _located(mapped, "the array", 0, mapped.data)


class NpzFile(InputFile):
    """An .npz file: its state is a flat dict, name -> array, in the order of the zip directory.

    Members that are stored are views. Compressed ones are decompressed, one at a time, when the
    state is asked for. An integer array `name@bfloat16` is array `name` of that dtype: see
    `outputs.write_npz`.
    """

    def __init__(self, mapped: MappedFile, members: ZipMembers) -> None:
        """Check that every member is an .npy, by name. Raises FormatError for another one."""
        super().__init__(mapped)
        self._members = members
        for name, member in members.members.items():
            if not name.endswith(".npy"):
                raise mapped.error(member.header, f"member {brief(name)} of the zip is no array")

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return name -> array. Raises FormatError, UnsupportedTypeError for objects and fields."""
        mapped = self._pages()
        state: dict[str, npt.NDArray[Any]] = {}
        for name, member in self._members.members.items():
            array = _located(mapped, f"array {brief(name)}", member.start, self._read(mapped, name))
            key, array = _restore_dtype(name.removesuffix(".npy"), array)
            if key in state:
                raise mapped.error(member.header, f"two arrays have the name {brief(key)}")
            state[key] = array
        return state

    def _read(self, mapped: MappedFile, name: str) -> Bytes:
        member = self._members.members[name]
        head = self._members.head(name, _LONGEST_HEADER)
        try:
            total = _read_header(head).total
        except (ValueError, UnsupportedTypeError) as error:
            raise _named(mapped, f"array {brief(name)}", member.start, error) from None
        return self._members.read(name, limit=total)


def _restore_dtype(key: str, array: npt.NDArray[Any]) -> tuple[str, npt.NDArray[Any]]:
    name, mark, code = key.rpartition("@")
    dtype = ML_DTYPES.get(code)
    if mark and dtype is not None and array.dtype == carrier_of(dtype):
        return name, array.view(dtype)
    return key, array


def _located(mapped: MappedFile, what: str, start: int, data: Bytes) -> npt.NDArray[Any]:
    """Open the array that `data`, an .npy, holds; errors name the file and `what`."""
    try:
        return _open_array(data, _read_header(data))
    except (ValueError, UnsupportedTypeError) as error:
        raise _named(mapped, what, start, error) from None


def _named(
    mapped: MappedFile, what: str, start: int, error: Exception
) -> FormatError | UnsupportedTypeError:
    if isinstance(error, UnsupportedTypeError):
        return UnsupportedTypeError(f"{mapped.path}: {what}: {error}")
    return mapped.error(start, f"{what}: {error}")
