"""One file, written: header, payload, metadata, footer."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol

from .. import codec
from ..errors import FormatError
from ..metadata import pack_metadata, pack_snapshot
from .layout import (
    END_MAGIC,
    FEATURES_OF,
    HEADER,
    LARGEST_METADATA,
    MAGIC,
    OF_REVISION,
    PAYLOAD_AT,
    VERSION,
    Bytes,
)

__all__ = ["FileWriter", "Pieces"]


class _Sink(Protocol):
    def write(self, data: bytes | memoryview | Bytes) -> object: ...
    def begin(self, data: Bytes) -> Callable[[], object]: ...


class Pieces(list[bytes]):
    """A small file in memory: what is written, piece by piece."""

    def write(self, data: bytes | memoryview | Bytes) -> None:
        """Append a piece."""
        self.append(bytes(data))

    def begin(self, data: Bytes) -> Callable[[], None]:
        """Append a piece at once."""
        self.write(data)
        return lambda: None


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
        self.features = features | FEATURES_OF[kind]
        """Feature bits, to be set before anything is written."""

    def _begin(self) -> None:
        if not self._header:
            used = (revision for revision, of in OF_REVISION.items() if self.features & of)
            revision = max(used, default=0)
            parts = (MAGIC, VERSION, self._kind, revision, 0, self.features)
            self._header = HEADER.pack(*parts)
            self._sink.write(self._header)

    def write_payload(self, data: Bytes, *, summed: bool = False) -> None:
        """Append to the payload. summed: the CRC is that of this data already."""
        self._begin()
        if not summed:
            self.crc.update(data)
        self._sink.write(data)
        self.payload_bytes += data.size

    def begin_payload(self, data: Bytes) -> Callable[[], object]:
        """Begin to append to the payload what is summed already; the result waits for the end.

        Until then the data must stay as they are, and nothing more may be written.
        """
        self._begin()
        self.payload_bytes += data.size
        return self._sink.begin(data)

    def finish(self, meta: bytes, headers: bytes, schema: bytes | None) -> int:
        """Write metadata and footer of one snapshot; return the file's size."""
        return self.finish_with(pack_metadata([pack_snapshot(meta, headers, schema)]))

    def finish_with(self, metadata: bytes) -> int:
        """Write metadata and footer; return the file's size."""
        self._begin()
        if len(metadata) > LARGEST_METADATA:
            raise FormatError(f"{len(metadata)} bytes of metadata are more than the format allows")
        start = struct.pack("<QI4s", self.crc.value, len(metadata), END_MAGIC)
        crc = codec.Crc()
        crc.update(self._header + metadata + start)
        tail = metadata + start + struct.pack("<Q", crc.value)
        self._sink.write(tail)
        return PAYLOAD_AT + self.payload_bytes + len(tail)
