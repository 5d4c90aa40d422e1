"""One file, read: its metadata checked, its payload at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from .. import codec
from ..errors import ChecksumError, FormatError, UnknownVersionError
from ..metadata import parse_metadata
from ..share import COMMIT, share_of
from .layout import (
    END_MAGIC,
    EXTRA,
    FEATURES_OF,
    FOOTER,
    HEADER,
    KNOWN_FEATURES,
    MAGIC,
    MERGED,
    PARTS,
    PAYLOAD_AT,
    REVISION,
    SNAPSHOT,
    VERSION,
    Bytes,
)

__all__ = ["FileReader"]

# One read gets the footer and, of most files, all metadata.
_TAIL = 1 << 16


class _Source(Protocol):
    @property
    def path(self) -> Path | str: ...
    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> Bytes: ...
    def payload(self, start: int) -> codec.Payload | None: ...


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
        self._header = self.source.read(0, HEADER.size).tobytes()
        if len(self._header) < HEADER.size or not self._header.startswith(MAGIC):
            raise self._error(0, "not a ckptz file")
        _, version, self.kind, revision, reserved, features = HEADER.unpack(self._header)
        if version != VERSION:
            return f"format version {version}; this ckptz reads version {VERSION}"
        self.features: int = features
        if features & ~KNOWN_FEATURES or reserved or FEATURES_OF.get(self.kind) != features & PARTS:
            return (
                f"features {features:#x} or kind {self.kind} that this ckptz does not know; "
                f"revision {revision} of format 1 knows them (this is revision {REVISION}): "
                "use a newer ckptz"
            )
        return ""

    def _read_metadata(self) -> tuple[bytes, int]:
        at = max(PAYLOAD_AT, self.size - _TAIL)
        tail = self.source.read(at, self.size - at).tobytes()
        end = self.size - FOOTER.size
        if end < PAYLOAD_AT or len(tail) < FOOTER.size:
            raise self._error(self.size, "the file is cut off")
        footer = tail[-FOOTER.size :]
        self.payload_crc, length, magic, crc = FOOTER.unpack(footer)
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

    def payload(self) -> codec.Payload | None:
        """Return the payload for the core to read; None where it cannot."""
        return self.source.payload(PAYLOAD_AT)

    def check_payload(self, piece: int = 1 << 24) -> None:
        """Read the whole payload. Raises `ChecksumError` if it does not match its checksum."""
        crc = codec.Crc()
        for offset in range(0, self.payload_bytes, piece):
            crc.update(self.read(offset, min(piece, self.payload_bytes - offset)))
        if crc.value != self.payload_crc:
            raise self._error(PAYLOAD_AT, "the payload does not match its checksum", ChecksumError)
