"""Writes .npz files, array by array, that `numpy.load` and `open_input` read without copying."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedTypeError
from ..inputs.base import brief
from ..inputs.dtypes import ML_DTYPES
from ..inputs.numpy_files import carrier_of
from ..storage import Writer, replace_file
from .arrays import write_array

__all__ = ["write_npz"]

_LONGEST_NAME = 0xFFFF
_ALIGNMENT = 64
_LOCAL_HEADER = 30
_ZIP64_EXTRA = 20
_PADDING_TAG = 0xD935  # that of zipalign
_DATE = (1980, 1, 1, 0, 0, 0)  # always the same, so that equal states give equal files


def write_npz(path: Path, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays, each as the stored member `<key>.npy`, whatever their layout and byte order.

    An .npy cannot name the dtypes of ml_dtypes (bfloat16, the float8 kinds, int4..). Such an array
    is stored as unsigned integers of its size under `<key>@<dtype>`, for example
    `fc1.weight@bfloat16`: `numpy.load(path)["fc1.weight@bfloat16"].view(ml_dtypes.bfloat16)`.
    `ckptz.inputs` gives it back under its own key and dtype.

    The mapping may be lazy: each value is asked for twice, first for `dtype` alone, then for its
    data, and held only while it is written. The file is complete and on disk, or `path` is as
    before (see `replace_file`). Raises UnsupportedTypeError for dtypes with fields or Python
    objects and for keys that no member can have (NUL, halves of surrogate pairs, over 65,000
    bytes), and OSError.
    """
    try:
        names = _member_names(tensors)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"{path}: {error}") from None
    with (
        replace_file(path) as file,
        zipfile.ZipFile(file, "w", allowZip64=True) as archive,
    ):
        for name, key in names.items():
            _write_member(archive, file, name, key, np.asarray(tensors[key]))


def _member_names(tensors: Mapping[str, npt.NDArray[Any]]) -> dict[str, str]:
    """Return member -> key."""
    names: dict[str, str] = {}
    for key in tensors:
        name = _member_name(key, np.dtype(tensors[key].dtype))
        if names.setdefault(name, key) != key:
            raise UnsupportedTypeError(
                f"arrays {brief(names[name])} and {brief(key)} would both be member {brief(name)}"
            )
    return names


def _member_name(key: str, dtype: np.dtype[Any]) -> str:
    if dtype.hasobject or dtype.names is not None:
        raise UnsupportedTypeError(f"array {brief(key)}: .npz cannot safely hold dtype {dtype}")
    mark, code = key.rpartition("@")[1:]
    if mark and code in ML_DTYPES and dtype.newbyteorder("<") == carrier_of(ML_DTYPES[code]):
        raise UnsupportedTypeError(
            f"array {brief(key)}: its key says that it is {code}, but it is {dtype}; rename it"
        )
    name = f"{key}@{dtype.name}.npy" if dtype in ML_DTYPES.values() else f"{key}.npy"
    try:
        fits = len(name.encode()) <= _LONGEST_NAME and "\0" not in name
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise UnsupportedTypeError(f"array {brief(key)}: a member of .npz cannot have this key")
    return name


def _write_member(
    archive: zipfile.ZipFile, file: Writer, name: str, key: str, array: npt.NDArray[Any]
) -> None:
    if _member_name(key, array.dtype) != name:
        raise ValueError(f"array {brief(key)} changed while it was being written")
    if array.dtype in ML_DTYPES.values():
        array = array.view(carrier_of(array.dtype))
    info = zipfile.ZipInfo(name, _DATE)
    info.filename = name  # as it is: on Windows, ZipInfo changes \ to /
    info.external_attr = 0o644 << 16
    start = file.tell() + _LOCAL_HEADER + len(name.encode()) + _ZIP64_EXTRA
    info.extra = _padding(start)  # so that the array is aligned in the file
    header = io.BytesIO()
    column_first = array.flags.f_contiguous and not array.flags.c_contiguous
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    with archive.open(info, "w", force_zip64=True) as member:
        member.write(header.getvalue())
        write_array(member, array.T if column_first else array)


def _padding(start: int) -> bytes:
    """Make an extra field after which the member's bytes are aligned."""
    length = -(start + 4) % _ALIGNMENT
    return struct.pack("<2H", _PADDING_TAG, length) + bytes(length)
