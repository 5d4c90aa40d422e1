"""MessagePack as the format uses it (format.md, 1): plain values and the nodes of a schema.

What MessagePack has no type for becomes an extension type, which is msgspec's `Ext`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.msgpack import Ext

from .dtypes import scalar_bytes, scalar_from_bytes
from .errors import FormatError, UnsupportedTypeError

__all__ = ["Node", "decode_nodes", "decode_values", "encode_nodes", "encode_values", "pack"]

Node = tuple[Any, ...]

_INTEGER, _COMPLEX, _TEXT, _SCALAR = 1, 2, 3, 4
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_AS_THEY_ARE = frozenset({type(None), bool, float, bytes})

_ENCODER = msgspec.msgpack.Encoder()
# Typed, so that no file makes msgspec descend further than this.
_Field = int | str | None | tuple[int | str, ...]
_DECODER = msgspec.msgpack.Decoder(list[tuple[_Field, ...]])
_ExtField = int | str | Ext | None | tuple[int | str | Ext, ...]
_EXT_DECODER = msgspec.msgpack.Decoder(list[tuple[_ExtField, ...]])


def encode_nodes(nodes: Sequence[Node]) -> bytes:
    """Encode nodes; their fields are str, int, None, or tuples of str and int."""
    try:
        return _ENCODER.encode(nodes)
    except UnicodeEncodeError:
        return _ENCODER.encode([tuple(map(_pack_field, node)) for node in nodes])


def decode_nodes(blob: bytes) -> list[Node]:
    """Inverse of `encode_nodes`. Raises `FormatError` for what that does not write."""
    try:
        return _canonical(_DECODER, blob)
    except FormatError as error:
        if not isinstance(error.__cause__, msgspec.ValidationError):
            raise
    # Some text may not be valid Unicode, which is rare.
    nodes = _canonical(_EXT_DECODER, blob)
    return [tuple(map(_unpack_field, node)) for node in nodes]


def _canonical(decoder: msgspec.msgpack.Decoder[Any], blob: bytes) -> list[Node]:
    try:
        nodes: list[Node] = decoder.decode(blob)
    except (msgspec.MsgspecError, ValueError) as error:  # the latter: text that is not UTF-8
        raise FormatError(str(error)) from error
    if _ENCODER.encode(nodes) != blob:
        raise FormatError("MessagePack that is not in the shortest form")
    return nodes


def _pack_field(value: object) -> object:
    return [pack(item) for item in value] if isinstance(value, tuple) else pack(value)


def _unpack_field(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_unpack_field, value))
    return _unpack_text(value) if isinstance(value, Ext) else value


def encode_values(values: Iterable[object]) -> list[Any]:
    """Pack plain values for MessagePack. A bytearray becomes bytes.

    Raises `UnsupportedTypeError`, which names the value's number, for any other type.
    """
    packed: list[Any] = []
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
            values.append(_unpack(value))
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


def _unpack(packed: object) -> object:
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
    return _unpack_text(packed)


def _unpack_text(packed: Ext) -> str:
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
