"""One array coded without a store: its record in a frame of its own."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._core import Crc, RecordError, SnapshotEncoder
from ..dtypes import dtype_name, layout, numpy_dtype, shape_fits
from ..errors import ChecksumError, FormatError, UnsupportedTypeError
from ..policy import Policy, Rule
from ..state import contiguous
from .core import (
    Bytes,
    as_bytes,
    crc_of,
    default_threads,
    describe,
    element_count,
    element_number,
    fill,
    finish,
    spec_for,
)

__all__ = ["decode", "encode"]

_MAGIC = b"CKA\x01"
_END = struct.Struct("<IQ")
_CRC_BYTES = 8


def encode(
    target: NDArray[Any],
    base: NDArray[Any] | None,
    rule: Rule | Policy | str = "lossy",
    *,
    out: Bytes | memoryview | bytearray | None = None,
    threads: int | None = None,
) -> bytes | memoryview:
    """Code an array against a base, which becomes what `decode` will give.

    target: any array that a state may hold. base: C-contiguous, writable, of the same dtype and
    shape, updated in place; None codes exactly. rule: a rule, a policy or its name. out: a
    writable buffer that is filled and of which the used part is returned as a memoryview, instead
    of new bytes. Raises `ValueError` where base or out do not fit (where out is too small the
    content of base is then lost), `UnsupportedTypeError` for a dtype that is not stored,
    `StateChangedError` for an array that another thread changes meanwhile.
    """
    target = contiguous(np.asarray(target))
    name = dtype_name(target.dtype)
    if name is None:
        raise UnsupportedTypeError(f"an array of dtype {target.dtype} is not stored")
    if base is not None:
        _check_base(base, target.dtype, target.shape, "encode")
    found = Policy.of(rule)
    number = found.match("array")
    spec = spec_for(None if number is None else found.rules[number], "array", name, target.shape)
    known = layout(name)
    element = element_number(known.element_type if known else "bytes", target.dtype.itemsize)
    bases = [None if base is None else as_bytes(base)]
    encoder = SnapshotEncoder(
        [as_bytes(target)], bases, [element], [spec], False, default_threads(threads)
    )
    crc = Crc()
    crc.update(_MAGIC)
    room, length = _fill(encoder, _room(target.nbytes, out), crc, given=out is not None)
    header = finish(encoder)[0]
    frame: list[object] = [name, list(target.shape), header]
    if base is not None and _keeps_some(header, element, target.nbytes):
        frame.append(crc_of(as_bytes(base)))
    meta = msgspec.msgpack.encode(frame)
    framed = _frame(room, length, meta, crc, given=out is not None)
    return framed.tobytes() if out is None else framed.data


def _keeps_some(header: bytes, element: int, nbytes: int) -> bool:
    """Whether chunks are unchanged from the base: of those the record has no content sums."""
    described = describe(header, [(element, element_count(element, nbytes))])[0]
    return described["kind"] == "same" or described["unchanged_chunks"] > 0


def _room(nbytes: int, out: Bytes | memoryview | bytearray | None) -> Bytes:
    if out is None:
        return np.empty(nbytes + nbytes // 8 + 4096, np.uint8)
    room = np.frombuffer(out, np.uint8)
    if not room.flags.writeable:
        raise ValueError("out is read-only")
    return room


def _fill(encoder: SnapshotEncoder, room: Bytes, crc: Crc, *, given: bool) -> tuple[Bytes, int]:
    """Fill the room after the magic; return it, or a larger one, and where the payload ends."""
    length = len(_MAGIC)
    while True:
        if length >= room.size:
            if given and (length > room.size or fill(encoder, np.empty(1, np.uint8), crc)):
                raise ValueError("out is too small")
            if given:
                return room, length
            room = np.concatenate([room, np.empty_like(room)])
        written = fill(encoder, room[length:], crc)
        if written == 0:
            return room, length
        length += written


def _frame(room: Bytes, length: int, meta: bytes, crc: Crc, *, given: bool) -> Bytes:
    """Put the magic before the payload, the rest after it; return what is used of the room.

    crc: of magic and payload.
    """
    end = length + len(meta) + _END.size
    if end > room.size:
        if given:
            raise ValueError(f"out has {room.size} bytes, {end} are needed")
        room = np.resize(room, end)
    room[: len(_MAGIC)] = np.frombuffer(_MAGIC, np.uint8)
    room[length : length + len(meta)] = np.frombuffer(meta, np.uint8)
    room[end - _END.size : end] = np.frombuffer(_END.pack(len(meta), 0), np.uint8)
    crc.update(room[length : end - _CRC_BYTES])
    room[end - _CRC_BYTES : end] = np.frombuffer(struct.pack("<Q", crc.value), np.uint8)
    return room[:end]


def _check_base(base: object, dtype: np.dtype[Any], shape: tuple[int, ...], verb: str) -> None:
    if not isinstance(base, np.ndarray) or base.dtype != dtype or base.shape != shape:
        raise ValueError(f"{verb}: the base must be an array of dtype {dtype} and shape {shape}")
    flags = base.flags
    if not (flags.c_contiguous and flags.aligned and flags.writeable and base.dtype.isnative):
        raise ValueError(f"{verb}: the base must be C-contiguous, aligned and writable")


def decode(
    data: bytes | bytearray | memoryview | Bytes,
    base: NDArray[Any] | None = None,
    *,
    threads: int | None = None,
) -> NDArray[Any]:
    """Return the array that `encode` coded: `base`, changed in place, or a new one without.

    base: as it was before `encode` (if that had one), C-contiguous and writable. Raises
    `ValueError` where a base is needed or does not fit, `ChecksumError` for damaged bytes, and for
    another base than the writer had, `FormatError` for bytes that `encode` never gives. Where the
    CRC fails the base is untouched; after any other error its content is lost.
    """
    raw = np.frombuffer(data, np.uint8)
    frame, payload = _parse(raw)
    name, shape, header = frame.dtype, frame.shape, frame.header
    known = layout(name)
    if known is None or not shape_fits(shape, known.itemsize):
        raise FormatError(f"array: unknown dtype {name!r:.40} or impossible shape")
    dtype = numpy_dtype(name)
    element = element_number(known.element_type, known.itemsize)
    try:
        nbytes = int(np.prod(shape, dtype=object)) * known.itemsize
        described = describe(header, [(element, element_count(element, nbytes))])[0]
        if base is None and described["needs_base"]:
            raise ValueError("decode: this array was coded against a base, which must be given")
        if base is None:
            base = np.ndarray(shape, dtype)  # `np.empty` takes the size 0 of a text for 1
        _check_base(base, dtype, shape, "decode")
        _core.decode_record(header, element, payload, as_bytes(base), default_threads(threads))
    except RecordError as error:
        kind = ChecksumError if error.args[1] else FormatError
        raise kind(f"array: {error.args[0]}") from None
    if frame.crc is not None and frame.crc != crc_of(as_bytes(base)):
        raise ChecksumError("array: it was coded against another base")
    return base


class _Frame(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The MessagePack array of an array frame."""

    dtype: str
    shape: tuple[int, ...]
    header: bytes
    crc: int | None = None
    """Of the decoded array; None where the record's content sums say enough."""


def _parse(raw: Bytes) -> tuple[_Frame, Bytes]:
    end = raw.size - _END.size
    if end < len(_MAGIC) or raw[: len(_MAGIC)].tobytes() != _MAGIC:
        raise FormatError("array: offset 0: not a coded array")
    length, crc = _END.unpack(raw[end:].tobytes())
    found = Crc()
    found.update(raw[:-_CRC_BYTES])
    if found.value != crc or length > end - len(_MAGIC):
        raise ChecksumError("array: the bytes do not match their checksum")
    try:
        frame = msgspec.msgpack.decode(raw[end - length : end].tobytes(), type=_Frame)
    except (msgspec.MsgspecError, ValueError) as error:
        raise FormatError(f"array: {error}") from error
    return frame, raw[len(_MAGIC) : end - length]
