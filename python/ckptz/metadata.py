"""What a file says of the snapshots in it (format.md, sections 3 and 11)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .errors import FormatError
from .snapshot import Meta, identify, pack_blob, pack_varint, unpack_blob, unpack_varint

__all__ = ["Stored", "pack_metadata", "pack_snapshot", "parse_metadata"]

_HAS_SCHEMA, _HIDDEN, _HAS_ABSENT = 1, 2, 4


class Stored(msgspec.Struct, frozen=True):
    """One snapshot (or residual), as a file has it."""

    id: bytes
    meta: Meta
    raw_meta: bytes
    headers: bytes
    schema: bytes | None
    """The schema blob, where this file holds it."""
    hidden: bool = False
    """Whether it is only a layer of others here."""
    absent: tuple[int, ...] = ()
    """Records whose chunks are not in this file."""
    size: int = 0
    """Bytes that it takes in the file's metadata."""


def pack_metadata(snapshots: Sequence[bytes]) -> bytes:
    """Return a file's metadata from what `pack_snapshot` gave."""
    return pack_varint(len(snapshots)) + b"".join(snapshots)


def pack_snapshot(
    meta: bytes,
    headers: bytes,
    schema: bytes | None,
    hidden: bool = False,
    absent: Sequence[int] = (),
) -> bytes:
    """Return what a file's metadata hold of one snapshot."""
    flags = _HAS_SCHEMA * (schema is not None) | _HIDDEN * hidden | _HAS_ABSENT * bool(absent)
    parts = [pack_varint(flags), pack_blob(meta), pack_blob(headers)]
    if schema is not None:
        parts.append(pack_blob(schema))
    if absent:
        gaps = [n - before - 1 for before, n in zip((-1, *absent), absent, strict=False)]
        parts += map(pack_varint, [len(absent), *gaps])
    return b"".join(parts)


def parse_metadata(data: memoryview, *, shared: bool) -> tuple[Stored, ...]:
    """Return the snapshots of a file. shared: it may hold several. Raises `FormatError`."""
    count, at = unpack_varint(data, 0)
    if count < 1 or count > (len(data) if shared else 1):
        raise FormatError(f"metadata: {count} snapshots in a file that does not say so")
    found: list[Stored] = []
    for _ in range(count):
        stored, at = _parse_snapshot(data, at, shared)
        if found and stored.meta.sequence <= found[-1].meta.sequence:
            raise FormatError("metadata: snapshots out of order")
        found.append(stored)
    if at != len(data):
        raise FormatError("metadata: bytes are left over")
    return tuple(found)


def _parse_snapshot(data: memoryview, at: int, shared: bool) -> tuple[Stored, int]:
    start = at
    flags, at = unpack_varint(data, at)
    if flags & ~(_HAS_SCHEMA | (_HIDDEN | _HAS_ABSENT if shared else 0)):
        raise FormatError(f"metadata: unknown flags {flags:#x}")
    raw, at = unpack_blob(data, at)
    headers, at = unpack_blob(data, at)
    schema = None
    absent: tuple[int, ...] = ()
    if flags & _HAS_SCHEMA:
        schema, at = unpack_blob(data, at)
    if flags & _HAS_ABSENT:
        absent, at = _parse_rising(data, at)
    stored = Stored(
        id=identify(raw, headers),
        meta=Meta.decode(raw),
        raw_meta=raw,
        headers=headers,
        schema=schema,
        hidden=bool(flags & _HIDDEN),
        absent=absent,
        size=at - start,
    )
    return stored, at


def _parse_rising(data: memoryview, at: int) -> tuple[tuple[int, ...], int]:
    count, at = unpack_varint(data, at)
    numbers: list[int] = []
    if not 0 < count <= len(data) - at:
        raise FormatError("metadata: a list of impossible length")
    for _ in range(count):
        gap, at = unpack_varint(data, at)
        numbers.append(gap + (numbers[-1] + 1 if numbers else 0))
    return tuple(numbers), at
