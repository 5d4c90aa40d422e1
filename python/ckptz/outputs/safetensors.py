"""Writes .safetensors files, tensor by tensor, byte for byte as the reference does."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedTypeError
from ..inputs.base import brief
from ..inputs.dtypes import PACKED_BITS, SAFETENSORS, bits_of
from ..inputs.safetensors import HEADER_LIMIT
from ..storage import Writer, replace_file
from .arrays import write_array

__all__ = ["write_safetensors"]

_CODES = {dtype: code for code, dtype in SAFETENSORS.items()}
_Entry = tuple[str, str, tuple[int, ...]]
_RANKS = {code: rank for rank, code in enumerate(SAFETENSORS)}


def write_safetensors(
    path: Path, tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]
) -> None:
    """Write arrays, whatever their layout and byte order, and text beside them (may be empty).

    The mapping may be lazy: each value is asked for twice, first for `dtype` and `shape` alone,
    then for its data (through `numpy.asarray`), and held only while it is written. The file is
    complete and on disk, or `path` is as before (see `replace_file`). float4_e2m1fn is packed, low
    half byte first.

    Raises UnsupportedTypeError for a dtype that the format has not (complex128, text, float6..),
    for a key that is no Unicode text or is `__metadata__`, and OSError.
    """
    try:
        entries = sorted(
            (_entry(key, tensors[key]) for key in tensors),
            key=lambda entry: (-_RANKS[entry[1]], entry[0].encode()),
        )
        header = _header(entries, metadata)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"{path}: {error}") from None
    with replace_file(path) as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for entry in entries:
            _write_tensor(file, entry, np.asarray(tensors[entry[0]]))


def _write_tensor(file: Writer, entry: _Entry, array: npt.NDArray[Any]) -> None:
    key, code, _ = entry
    if _entry(key, array) != entry:
        raise ValueError(f"tensor {brief(key)} changed while it was being written")
    little = array.astype(SAFETENSORS[code], copy=False)
    write_array(file, _pack_nibbles(little) if code in PACKED_BITS else little)


def _entry(key: str, tensor: npt.NDArray[Any]) -> _Entry:
    """Take key, dtype code and shape, no data, of a tensor that the format can hold."""
    dtype, shape = np.dtype(tensor.dtype), tuple(tensor.shape)
    if not _is_text(key) or key == "__metadata__":
        raise UnsupportedTypeError(
            f"tensor {brief(key)}: .safetensors cannot have this key; write .npz instead"
        )
    code = _code_of(key, dtype)
    if code in PACKED_BITS and math.prod(shape) % 2:
        raise UnsupportedTypeError(
            f"tensor {brief(key)}: .safetensors packs {dtype} in pairs, and the number of entries "
            "is odd; write .npz instead"
        )
    return key, code, shape


def _code_of(key: str, dtype: np.dtype[Any]) -> str:
    code = _CODES.get(dtype.newbyteorder("<") if dtype.kind in "iufc" else dtype)
    if code is None or code.startswith("F6_"):
        raise UnsupportedTypeError(
            f"tensor {brief(key)}: .safetensors cannot hold dtype {dtype}; write .npz instead"
        )
    return code


def _is_text(text: object) -> bool:
    return isinstance(text, str) and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _header(entries: list[_Entry], metadata: Mapping[str, str]) -> bytes:
    if not all(_is_text(text) for item in metadata.items() for text in item):
        raise UnsupportedTypeError("metadata of .safetensors is text for text")
    fields: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    start = 0
    for key, code, shape in entries:
        end = start + math.prod(shape) * bits_of(code) // 8
        fields[key] = {"dtype": code, "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) + 8 > HEADER_LIMIT:
        raise UnsupportedTypeError(
            f"the keys need a .safetensors header of {len(text)} bytes, more than "
            f"{HEADER_LIMIT}; write .npz instead"
        )
    return text + b" " * (-len(text) % 8)


def _pack_nibbles(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    halves = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    low, high = halves[0::2] & 15, np.left_shift(halves[1::2], 4)
    packed: npt.NDArray[np.uint8] = np.bitwise_or(low, high).astype(np.uint8)
    return packed
