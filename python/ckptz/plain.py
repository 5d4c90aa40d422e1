"""Plain values as MessagePack holds them: themselves, or as extension types (format.md, 1).

To pack is not yet to encode: the packed values go into a larger MessagePack array.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
from msgspec.msgpack import Ext

from .dtypes import scalar_bytes, scalar_from_bytes
from .errors import FormatError, UnsupportedTypeError

__all__ = ["decode_values", "encode_values", "pack", "unpack", "unpack_text"]

_INTEGER, _COMPLEX, _TEXT, _SCALAR = 1, 2, 3, 4
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_AS_THEY_ARE = frozenset({type(None), bool, float, bytes})


def encode_values(values: Iterable[object]) -> list[object]:
    """Pack plain values for MessagePack. A bytearray becomes bytes.

    Raises `UnsupportedTypeError`, which names the value's number, for any other type.
    """
    packed: list[object] = []
    for number, value in enumerate(values):
        try:
            packed.append(pack(value))
        except UnsupportedTypeError as error:
            raise UnsupportedTypeError(f"value {number}: {error}") from None
    return packed


def decode_values(packed: Iterable[object]) -> list[object]:
    """Inverse of `encode_values`, for what msgspec decoded (extension types as `Ext`).

    Raises `FormatError`, which names the value's number, for anything but a plain value.
    """
    values: list[object] = []
    for number, value in enumerate(packed):
        try:
            values.append(unpack(value))
        except FormatError as error:
            raise FormatError(f"value {number}: {error}") from error
    return values


def pack(value: object) -> object:
    """Pack one plain value."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if isinstance(value, np.generic):
        return _pack_scalar(value)
    if kind is int:
        return _pack_integer(value)  # type: ignore[arg-type]
    if kind is str:
        return _pack_text(value)  # type: ignore[arg-type]
    if kind is complex:
        return Ext(_COMPLEX, struct.pack("<dd", value.real, value.imag))  # type: ignore[attr-defined]
    if kind is bytearray:
        return bytes(value)  # type: ignore[call-overload]
    raise UnsupportedTypeError(f"no plain value: {kind.__qualname__}")


def _pack_integer(value: int) -> object:
    if _SMALLEST <= value <= _LARGEST:
        return value
    # Eight bits hold seven and the sign, so the length is one more than the whole bytes below it.
    bits = (value if value >= 0 else ~value).bit_length()
    return Ext(_INTEGER, value.to_bytes(bits // 8 + 1, "little", signed=True))


def _pack_text(value: str) -> object:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
    return value


def _pack_scalar(value: np.generic) -> object:
    parts = scalar_bytes(value)
    if parts is None:
        raise UnsupportedTypeError(f"no plain value: {type(value).__qualname__}")
    name = parts[0].encode()
    return Ext(_SCALAR, bytes([len(name)]) + name + parts[1])


def unpack(packed: object) -> object:
    """Inverse of `pack`."""
    kind = type(packed)
    if kind in _AS_THEY_ARE or kind is int or kind is str:
        return packed
    if not isinstance(packed, Ext):
        raise FormatError(f"{kind.__name__} is no plain value")
    data = bytes(packed.data)
    if packed.code == _COMPLEX:
        if len(data) != 16:
            raise FormatError(f"complex number of {len(data)} bytes")
        return complex(*struct.unpack("<dd", data))
    if packed.code == _SCALAR:
        end = 1 + (data[0] if data else 0)
        if not data or len(data) < end or not data[1:end].isascii():
            raise FormatError("NumPy scalar without a dtype name")
        return scalar_from_bytes(data[1:end].decode(), data[end:])
    if packed.code == _INTEGER:
        value = int.from_bytes(data, "little", signed=True)
        if _SMALLEST <= value <= _LARGEST or _pack_integer(value) != packed:
            raise FormatError("integer in more bytes than it needs")
        return value
    return unpack_text(packed)


def unpack_text(packed: Ext) -> str:
    """Text that is not valid Unicode. Raises `FormatError` for other extension types."""
    if packed.code != _TEXT:
        raise FormatError(f"unknown extension type {packed.code}")
    try:
        text = bytes(packed.data).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise FormatError("text that is not even UTF-8 with lone surrogates") from error
    if _pack_text(text) is text:
        raise FormatError("valid text as an extension type")
    return text
