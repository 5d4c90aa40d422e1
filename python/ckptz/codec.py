"""The compiled core, for the rest of the package, and arrays coded without a store.

`encode` and `decode` turn one array into bytes and back. Everything else here is for the package
itself: no other module touches the compiled one.
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from . import _core
from ._core import Chain as Chain
from ._core import ChangedError as ChangedError
from ._core import Crc as Crc
from ._core import Merge as Merge
from ._core import RecordError as RecordError
from ._core import SnapshotEncoder as SnapshotEncoder
from ._core import Spec as Spec
from ._core import Window as Window
from .dtypes import dtype_name, layout, numpy_dtype, shape_fits
from .errors import ChecksumError, FormatError, StateChangedError, UnsupportedTypeError
from .policy import DEFAULT_BITS, DEFAULT_LEVELS, Policy, Rule, is_batch_statistic
from .state import contiguous

__all__ = ["decode", "encode"]

Bytes = NDArray[np.uint8]

__version__: str = _core.__version__
compress = _core.compress
content_sum = _core.content_sum
copy_changed = _core.copy_changed
crcs = _core.crcs
decompress = _core.decompress
describe = _core.describe
digest = _core.digest
predictions = _core.predictions
useless_records = _core.useless_records

# Record headers of a snapshot in a file, the tensor of each record, records that are not there, and
# what they are part of.
FileSnapshot = tuple[bytes, list[int], list[int], int]
OF_FULL, OF_DELTA, OF_RESIDUAL = 0, 1, 2

_ELEMENTS = {"f16": 0, "bf16": 1, "f32": 2, "f64": 3}
_OPAQUE = 16
_LARGEST_OPAQUE = 255

_MOST_THREADS = 1024

_CHUNK_LOG2 = 16
_LEAST_ELEMENTS = 16  # Smaller tensors are exact: tables would take more than they save.

_MAGIC = b"CKA\x01"
_END = struct.Struct("<IQ")
_CRC_BYTES = 8


def default_threads(threads: int | None = None) -> int:
    """Return how many threads to use: as told, or `CKPTZ_NUM_THREADS`, or the usable cores."""
    if threads is None:
        text = os.environ.get("CKPTZ_NUM_THREADS", "")
        if not (text.isascii() and text.isdecimal()):
            return min(_usable_cores(), _MOST_THREADS)
        threads = int(text)
    if type(threads) is not int or not 1 <= threads <= _MOST_THREADS:
        raise ValueError(f"threads={threads!r} is not an integer from 1 to {_MOST_THREADS}")
    return threads


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS has no such thing


def element_number(element_type: str, itemsize: int) -> int:
    """Return the core's number for an element type of the format."""
    if element_type == "bytes":
        # Items too long for the core are cut into bytes: only transposing would tell a difference.
        return _OPAQUE + (itemsize if 1 <= itemsize <= _LARGEST_OPAQUE else 1)
    return _ELEMENTS[element_type]


def element_count(element: int, nbytes: int) -> int:
    """Return how many elements of this type a tensor of `nbytes` has."""
    size = (2, 2, 4, 8)[element] if element < _OPAQUE else element - _OPAQUE
    return nbytes // size


EXACT = Spec.exact(links=True, predict=True, chunk_log2=_CHUNK_LOG2)
_EXACT_ALONE = Spec.exact(links=True, predict=False, chunk_log2=_CHUNK_LOG2)
"""What is asked of the core for every tensor that is to be exact: these very objects."""


def is_exact(spec: Spec) -> bool:
    """Whether a spec asks for a tensor bit for bit."""
    return spec is EXACT or spec is _EXACT_ALONE


@lru_cache(maxsize=4096)
def spec_of(rule: Rule | None, small: bool, batch_statistic: bool) -> Spec:
    """Return what a rule asks of the core; `small`: a tensor without dimensions."""
    predict = rule is None or rule.base == "auto"
    if rule is None or rule.mode == "exact":
        return EXACT if predict else _EXACT_ALONE
    if rule.mode == "paper":
        return _paper_spec(rule)
    if small or (batch_statistic and rule.mode == "auto"):
        return EXACT if predict else _EXACT_ALONE
    return Spec.lossy(
        levels=rule.levels or DEFAULT_LEVELS,
        bits=None,
        non_negative_levels=rule.non_negative_levels,
        domain=rule.domain,
        representative=rule.representative,
        refinement=rule.refinement,
        base="auto",
        coding=rule.coding,
        exact_fallback=True,
        least_elements=_LEAST_ELEMENTS,
        links=True,
        predict=predict,
        chunk_log2=_CHUNK_LOG2,
        max_error=rule.max_error,
        max_rel_error=rule.max_rel_error,
    )


def _paper_spec(rule: Rule) -> Spec:
    return Spec.lossy(
        levels=None,
        bits=rule.bits or DEFAULT_BITS,
        non_negative_levels=None,
        domain="value" if rule.domain == "auto" else rule.domain,
        representative=rule.representative,
        refinement=rule.refinement,
        base="previous",
        coding=rule.coding,
        exact_fallback=False,
        least_elements=0,
        links=False,
        predict=False,
        chunk_log2=_CHUNK_LOG2,
    )


def spec_for(rule: Rule | None, path: str, dtype: str, shape: tuple[int, ...]) -> Spec:
    """Return the spec of one tensor under the rule that matches it."""
    known = layout(dtype)
    never_lossy = known is None or known.element_type == "bytes" or known.per_entry > 1
    if never_lossy:
        rule = None
    return spec_of(rule, not shape, is_batch_statistic(path))


def as_bytes(array: NDArray[Any]) -> Bytes:
    """View a C-contiguous array as a run of bytes, without a copy."""
    if array.nbytes == 0:
        return np.empty(0, np.uint8)
    flat: Bytes = array.reshape(-1).view(np.uint8)
    return flat


def bytes_to_read(array: NDArray[Any]) -> Bytes:
    """View a C-contiguous array that nothing here writes to as a run of bytes, without a copy.

    The core asks of each array whether it shares memory with one that is written to, which takes
    the square of the time for many views of one array; what this returns is no view to it.
    """
    flat = as_bytes(array)
    return flat if array.base is None or not flat.size else np.frombuffer(flat.data, np.uint8)


def empty_bytes(size: int) -> Bytes:
    """Return fresh memory, aligned for every element type."""
    return np.empty(-(-size // 16), np.complex128).view(np.uint8)[:size]


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


def crc_of(content: Bytes) -> int:
    """Return the CRC of an array's bytes."""
    crc = _core.Crc()
    crc.update(content)
    return crc.value


def _room(nbytes: int, out: Bytes | memoryview | bytearray | None) -> Bytes:
    if out is None:
        return np.empty(nbytes + nbytes // 8 + 4096, np.uint8)
    room = np.frombuffer(out, np.uint8)
    if not room.flags.writeable:
        raise ValueError("out is read-only")
    return room


def fill(encoder: SnapshotEncoder, room: Bytes, crc: Crc) -> int:
    """Write coded bytes to the room and return how many, 0 once there are no more.

    The CRC is then continued by all of them, before by those that are coded.
    Raises `StateChangedError` where a tensor is not what it was when its coding was planned.
    """
    try:
        return encoder.fill(room, crc)
    except ChangedError as error:
        raise StateChangedError(f"{error}: nothing is saved") from None


def finish(encoder: SnapshotEncoder) -> tuple[bytes, bool, bool]:
    """Return the record headers, whether any is lossy, and whether all floats are finite.

    Raises `StateChangedError` as `fill` does.
    """
    try:
        return encoder.finish()
    except ChangedError as error:
        raise StateChangedError(f"{error}: nothing is saved") from None


def _fill(
    encoder: SnapshotEncoder, room: Bytes, crc: Crc, *, given: bool
) -> tuple[Bytes, int]:
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
