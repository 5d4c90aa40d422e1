"""One file: header, payload, metadata, footer (format.md, section 2)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from . import codec
from .errors import ChecksumError, FormatError, UnknownVersionError
from .metadata import Stored, pack_metadata, pack_snapshot, parse_metadata
from .share import COMMIT, PART, Share, share_of
from .snapshot import Meta
from .storage import Listed

__all__ = [
    "COMMIT",
    "EXTRA",
    "MERGED",
    "PART",
    "PARTS",
    "RESIDUAL",
    "RESIDUAL_SUFFIX",
    "SNAPSHOT",
    "SUFFIX",
    "Entry",
    "FileReader",
    "FileWriter",
    "file_name",
    "merged_name",
]

Bytes = NDArray[np.uint8]

MAGIC = b"\x89CKPTZ\r\n"
END_MAGIC = b"PTZ\n"
VERSION = 1
REVISION = 1
# Features (format.md, section 14): several snapshots in a file, predicted bases, parts and
# commits, and a snapshot's field `extra`.
MERGED, PREDICTED_BASES, PARTS, EXTRA = 1, 2, 4, 8
KNOWN_FEATURES = MERGED | PREDICTED_BASES | PARTS | EXTRA
_OF_REVISION_1 = PREDICTED_BASES | EXTRA

SNAPSHOT, RESIDUAL = 1, 2
_FEATURES = {SNAPSHOT: 0, RESIDUAL: 0, PART: PARTS, COMMIT: PARTS}
SUFFIX = ".ckptz"
RESIDUAL_SUFFIX = ".residual.ckptz"

_HEADER = struct.Struct("<8sBBBBI")
_FOOTER = struct.Struct("<QI4sQ")
PAYLOAD_AT = _HEADER.size
_LARGEST_METADATA = 2**32 - 1
# One read gets the footer and, of most files, all metadata.
_TAIL = 1 << 16


class _Sink(Protocol):
    def write(self, data: bytes | memoryview | Bytes) -> object: ...


class _Source(Protocol):
    @property
    def path(self) -> Path | str: ...
    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> Bytes: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A snapshot (or residual) in a file of the store. Light: one of each is kept in memory."""

    listed: Listed
    kind: int
    id: bytes
    """Identity of the snapshot."""
    meta: Meta
    """What is known of it, but for the plain values."""
    payload_bytes: int
    """Of its file."""
    holds_schema: bool
    share: Share | None = None
    """Of a part or a commit: what belongs together."""
    commit: Listed | None = None
    """The file that makes a part a snapshot."""
    hidden: bool = False
    """Whether its file has it only as a layer of others."""
    missing: int = 0
    """How many of its records have no chunks in its file."""
    sharing: int = 1
    """How many snapshots its file holds."""

    @classmethod
    def all_of(cls, listed: Listed, file: FileReader) -> tuple[Entry, ...]:
        """Return the entries of a file that has been read."""
        return tuple(
            cls(
                listed,
                file.kind,
                stored.id,
                msgspec.structs.replace(stored.meta, values=None, changes=[]),
                file.payload_bytes,
                stored.schema is not None,
                file.share,
                hidden=stored.hidden,
                missing=len(stored.absent),
                sharing=len(file.snapshots),
            )
            for stored in file.snapshots
        )

    @property
    def key(self) -> tuple[Listed, bytes]:
        """What tells it from copies of the same snapshot in other files."""
        return self.listed, self.id

    def check(self, file: FileReader) -> Stored:
        """Return what its file holds. Raises `FormatError` if that is something else by now."""
        for stored in file.snapshots:
            if stored.id == self.id:
                return stored
        error = FormatError(f"{file.path}: the file has been replaced since the store was read")
        error.snapshot = self.id
        raise error

    @property
    def name(self) -> str:
        """Name of its file."""
        return self.listed.name

    @property
    def files(self) -> list[Listed]:
        """Its files, in the order in which they are deleted: the commit first."""
        return [listed for listed in (self.commit, self.listed) if listed is not None]

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return self.listed.size + (0 if self.commit is None else self.commit.size)


def merged_name(step: int, metadata: bytes) -> str:
    """Return the name of a merged file whose last snapshot is of `step`."""
    return f"{step:010d}-{codec.digest([metadata])[:8].hex()}.merged{SUFFIX}"


def file_name(step: int, identity: bytes, residual: bool = False) -> str:
    """Return the name under which a snapshot is written."""
    return f"{step:010d}-{identity[:8].hex()}{RESIDUAL_SUFFIX if residual else SUFFIX}"


class FileWriter:
    """Writes one file: first all payload, then the rest."""

    def __init__(self, sink: _Sink, kind: int, features: int = 0) -> None:
        """Begin a file of this kind that uses these features."""
        self._sink = sink
        self.crc = codec.Crc()
        """Of the payload."""
        self._kind = kind
        self._header = b""
        self.payload_bytes = 0
        self.features = features | _FEATURES[kind]
        """Feature bits, to be set before anything is written."""

    def _begin(self) -> None:
        if not self._header:
            revision = REVISION if self.features & _OF_REVISION_1 else 0
            parts = (MAGIC, VERSION, self._kind, revision, 0, self.features)
            self._header = _HEADER.pack(*parts)
            self._sink.write(self._header)

    def write_payload(self, data: Bytes, *, summed: bool = False) -> None:
        """Append to the payload. summed: the CRC is that of this data already."""
        self._begin()
        if not summed:
            self.crc.update(data)
        self._sink.write(data)
        self.payload_bytes += data.size

    def finish(self, meta: bytes, headers: bytes, schema: bytes | None) -> int:
        """Write metadata and footer of one snapshot; return the file's size."""
        return self.finish_with(pack_metadata([pack_snapshot(meta, headers, schema)]))

    def finish_with(self, metadata: bytes) -> int:
        """Write metadata and footer; return the file's size."""
        self._begin()
        if len(metadata) > _LARGEST_METADATA:
            raise FormatError(f"{len(metadata)} bytes of metadata are more than the format allows")
        start = struct.pack("<QI4s", self.crc.value, len(metadata), END_MAGIC)
        crc = codec.Crc()
        crc.update(self._header + metadata + start)
        tail = metadata + start + struct.pack("<Q", crc.value)
        self._sink.write(tail)
        return PAYLOAD_AT + self.payload_bytes + len(tail)


class FileReader:
    """A complete file: its metadata checked, its payload at hand.

    Raises `FormatError` (or `ChecksumError`, which is one) that names the file and the offset
    where it is not a complete file of this format, `UnknownVersionError` where it is one that only
    a newer ckptz knows.
    """

    def __init__(self, source: _Source) -> None:
        """Read everything but the payload."""
        self.path = source.path
        self.size = source.size
        self.source = source
        if source.size == 0:
            raise self._error(0, "the file is empty")
        unknown = self._read_header()
        try:
            metadata, at = self._read_metadata()
        except FormatError:
            if unknown:  # or damaged: the checksum would tell, if the header can be believed
                raise self._error(8, unknown) from None
            raise
        if unknown:
            raise self._error(8, unknown, UnknownVersionError)
        try:
            self._parse(memoryview(metadata), at)
        except FormatError as error:
            raise self._error(at, str(error), type(error)) from error
        self.payload_bytes = at - PAYLOAD_AT

    def _parse(self, metadata: memoryview, at: int) -> None:
        shared = bool(self.features & MERGED) and self.kind == SNAPSHOT
        self.snapshots = parse_metadata(metadata, shared=shared)
        if any(s.meta.extra for s in self.snapshots) and not self.features & EXTRA:
            raise FormatError("meta: a field of a feature that the file does not name")
        shares = [share_of(self.kind, stored.meta) for stored in self.snapshots]
        self.share = shares[0]
        if self.kind == COMMIT and (self.snapshots[0].headers or at > PAYLOAD_AT):
            raise FormatError("a commit that holds records")

    def _error(self, offset: int, what: str, kind: type[FormatError] = FormatError) -> FormatError:
        return kind(f"{self.path}: offset {offset}: {what}")

    def _read_header(self) -> str:
        """Read the header; return what of it this ckptz does not know."""
        self._header = self.source.read(0, _HEADER.size).tobytes()
        if len(self._header) < _HEADER.size or not self._header.startswith(MAGIC):
            raise self._error(0, "not a ckptz file")
        _, version, self.kind, revision, reserved, features = _HEADER.unpack(self._header)
        if version != VERSION:
            return f"format version {version}; this ckptz reads version {VERSION}"
        self.features: int = features
        if features & ~KNOWN_FEATURES or reserved or _FEATURES.get(self.kind) != features & PARTS:
            return (
                f"features {features:#x} or kind {self.kind} that this ckptz does not know; "
                f"revision {revision} of format 1 knows them (this is revision {REVISION}): "
                "use a newer ckptz"
            )
        return ""

    def _read_metadata(self) -> tuple[bytes, int]:
        at = max(PAYLOAD_AT, self.size - _TAIL)
        tail = self.source.read(at, self.size - at).tobytes()
        end = self.size - _FOOTER.size
        if end < PAYLOAD_AT or len(tail) < _FOOTER.size:
            raise self._error(self.size, "the file is cut off")
        footer = tail[-_FOOTER.size :]
        self.payload_crc, length, magic, crc = _FOOTER.unpack(footer)
        if magic != END_MAGIC or length > end - PAYLOAD_AT:
            raise self._error(end, "the file is cut off, or its footer is damaged")
        start = end - length
        metadata = (
            tail[start - at : end - at]
            if start >= at
            else self.source.read(start, length).tobytes()
        )
        found = codec.Crc()
        found.update(self._header + metadata + footer[:-8])
        if found.value != crc:
            raise self._error(start, "the metadata do not match their checksum", ChecksumError)
        return metadata, start

    def read(self, offset: int, length: int) -> Bytes:
        """Return bytes of the payload. Raises `FormatError` where it ends before them."""
        data = self.source.read(PAYLOAD_AT + offset, length)
        if data.size < length or offset + length > self.payload_bytes:
            raise self._error(PAYLOAD_AT + offset, "the payload is cut off")
        return data

    def check_payload(self, piece: int = 1 << 24) -> None:
        """Read the whole payload. Raises `ChecksumError` if it does not match its checksum."""
        crc = codec.Crc()
        for offset in range(0, self.payload_bytes, piece):
            crc.update(self.read(offset, min(piece, self.payload_bytes - offset)))
        if crc.value != self.payload_crc:
            raise self._error(PAYLOAD_AT, "the payload does not match its checksum", ChecksumError)
