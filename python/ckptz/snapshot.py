"""What is known of one snapshot beside its tensors (format.md, section 3)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from . import codec
from .errors import FormatError

__all__ = [
    "Extra",
    "Meta",
    "identify",
    "pack_blob",
    "resolve_values",
    "schema_digest",
    "unpack_blob",
]

LARGEST_STEP = 2**63 - 1
LARGEST_SEQUENCE = 2**64 - 1

_ENCODER = msgspec.msgpack.Encoder()


class Meta(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The fields of `meta`; their order is the format's."""

    sequence: int
    step: int
    parent: bytes | None
    schema: bytes
    created: int
    values: list[Any] | None = None
    changes: list[Any] = []
    rewound: list[tuple[int, int]] = []
    policy: list[tuple[int | float | str | None, ...]] | None = None
    marks: int = 0
    part: list[Any] | None = None
    extra: list[Any] = []
    """What `Extra` packs."""

    @property
    def full(self) -> bool:
        """Whether the snapshot needs no other."""
        return self.parent is None

    def encode(self) -> bytes:
        """Return the MessagePack form, without the trailing fields that have their defaults."""
        fields = [getattr(self, name) for name in self.__struct_fields__]
        while len(fields) > len(_REQUIRED) and fields[-1] == _BLANK[len(fields) - 1]:
            fields.pop()
        return _ENCODER.encode(fields)

    @classmethod
    def decode(cls, raw: bytes) -> Meta:
        """Return the checked fields. Raises `FormatError`."""
        try:
            meta = _DECODER.decode(raw)
            shortest = meta.encode() == raw
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise FormatError(f"meta: {error}") from error
        if not shortest:
            raise FormatError("meta: not in its shortest form")
        meta._check()
        return meta

    def _check(self) -> None:
        digests = [self.schema] if self.parent is None else [self.schema, self.parent]
        if any(len(digest) != 16 for digest in digests):
            raise FormatError("meta: an id that has not 16 bytes")
        numbers = (self.sequence, self.created, self.marks)
        if min(numbers) < 0 or not 0 <= self.step <= LARGEST_STEP or self.marks > 1:
            raise FormatError("meta: a number out of range")
        Extra.of(self)
        if (self.values is not None and self.changes) or len(self.changes) % 2:
            raise FormatError("meta: fields that do not go together")
        last = -1
        for first, end in self.rewound:
            if not last < first <= end < self.sequence:
                raise FormatError("meta: rewound ranges that do not rise")
            last = end + 1


_REQUIRED = (0, 0, None, b"", 0)
_BLANK = msgspec.structs.astuple(Meta(*_REQUIRED))
_DECODER = msgspec.msgpack.Decoder(Meta)


class Extra(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The field `extra`: what few snapshots have to tell (format.md, section 3)."""

    lossy_restores: int = 0
    """Restores on the line, since its last full snapshot, that gave not what had been saved."""
    ages: list[int] = []
    """Number of a record, how many saves it has been left as it was, and so on in pairs."""
    metrics: list[str | float] = []
    """Names and numbers in pairs: what the user measured."""

    @classmethod
    def of(cls, meta: Meta) -> Extra:
        """Return what a snapshot has. Raises `FormatError`."""
        if not meta.extra:
            return _NO_EXTRA
        try:
            extra = msgspec.convert(meta.extra, cls)
        except msgspec.ValidationError as error:
            raise FormatError(f"meta: extra: {error}") from error
        extra._check()
        if _ENCODER.encode(extra.pack()) != _ENCODER.encode(meta.extra):
            raise FormatError("meta: extra: not in its shortest form")
        return extra

    def pack(self) -> list[Any]:
        """Return the field, without trailing defaults."""
        fields: list[Any] = [self.lossy_restores, self.ages, self.metrics]
        while fields and not fields[-1]:
            fields.pop()
        return fields

    def measured(self) -> dict[str, float]:
        """Return the metrics."""
        pairs = zip(self.metrics[::2], self.metrics[1::2], strict=True)
        return {str(name): float(number) for name, number in pairs}

    def _check(self) -> None:
        records, ages = self.ages[::2], self.ages[1::2]
        names, numbers = self.metrics[::2], self.metrics[1::2]
        good = len(records) == len(ages) and len(names) == len(numbers)
        good = good and records == sorted(set(records)) and min(records, default=0) >= 0
        good = good and min(ages, default=1) > 0 and self.lossy_restores >= 0
        good = good and len(set(names)) == len(names)
        good = good and all(isinstance(name, str) for name in names)
        if not good or not all(isinstance(number, float) for number in numbers):
            raise FormatError("meta: extra: fields that cannot be")


_NO_EXTRA = Extra()


def identify(meta: bytes, headers: bytes) -> bytes:
    """Return the id of a snapshot from its raw metadata and record headers."""
    lengths = struct.pack("<Q", len(meta)), struct.pack("<Q", len(headers))
    return codec.digest([b"ckptz 1\0", lengths[0], meta, lengths[1], headers])


def schema_digest(schema: bytes) -> bytes:
    """Return the name of a schema."""
    return codec.digest([b"ckptz schema 1\0", schema])


def pack_values(packed: list[Any], parent: list[Any] | None) -> tuple[list[Any] | None, list[Any]]:
    """Return the fields `values` and `changes` for packed values, after the parent's if it helps.

    parent: the parent's packed values where it has the same schema, else None.
    """
    if parent is None or len(parent) != len(packed):
        return packed, []
    changes: list[Any] = []
    for position, (old, new) in enumerate(zip(parent, packed, strict=True)):
        # Compared as bytes: 1 is not True, and a NaN is itself.
        if old is not new and _ENCODER.encode(old) != _ENCODER.encode(new):
            changes += [position, new]
    if len(_ENCODER.encode(changes)) < len(_ENCODER.encode(packed)):
        return None, changes
    return packed, []


def resolve_values(metas: Sequence[Meta], count: int) -> list[Any]:
    """Return the packed values after the last of `metas`, each the parent of the next.

    The first is a full snapshot's. Raises `FormatError` unless there are `count` of them.
    """
    values: list[Any] = []
    for meta in metas:
        if meta.values is not None:
            values = list(meta.values)
            continue
        last = -1
        for position, value in zip(meta.changes[::2], meta.changes[1::2], strict=True):
            if type(position) is not int or not last < position < len(values):
                raise FormatError("meta: a change of no value")
            values[position] = value
            last = position
    if len(values) != count:
        raise FormatError(f"meta: {len(values)} values where the schema has {count}")
    return values


def pack_blob(raw: bytes) -> bytes:
    """Return a blob: compressed where that is smaller."""
    compressed = codec.compress(raw) if len(raw) > 64 else raw
    if len(compressed) + 2 < len(raw) and len(raw) <= 1024 * len(compressed) + 4096:
        return pack_varint(len(compressed) << 1 | 1) + pack_varint(len(raw)) + compressed
    return pack_varint(len(raw) << 1) + raw


def unpack_blob(data: memoryview, at: int) -> tuple[bytes, int]:
    """Return the raw bytes of the blob at `at`, and where it ends. Raises `FormatError`."""
    length, at = unpack_varint(data, at)
    raw = length >> 1
    if length & 1:
        raw, at = unpack_varint(data, at)
    end = at + (length >> 1)
    if end > len(data):
        raise FormatError("metadata: a blob is cut off")
    stored = bytes(data[at:end])
    if not length & 1:
        return stored, end
    if raw > 1024 * len(stored) + 4096:
        raise FormatError("metadata: a blob claims too much")
    try:
        return codec.decompress(stored, raw), end
    except ValueError as error:
        raise FormatError(f"metadata: {error}") from error


def pack_varint(value: int) -> bytes:
    """Return a varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def unpack_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a varint below 2^64, and where it ends. Raises `FormatError`."""
    value = 0
    for group in range(10):
        if at + group >= len(data):
            raise FormatError("metadata: a number is cut off")
        byte = data[at + group]
        value |= (byte & 0x7F) << (7 * group)
        if byte < 0x80:
            if (byte == 0 and group) or value >= 2**64:
                break
            return value, at + group + 1
    raise FormatError("metadata: a number that is not in its shortest form")
