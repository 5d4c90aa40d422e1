"""The members of a zip archive that is mapped, as views: .npz files and torch's own.

Stricter than `zipfile`: one disk, no duplicates, no overlaps, nothing between the directory and
the end. A stored member is a view; a compressed one can grow only as far as deflate allows.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .base import Bytes, MappedFile, brief

__all__ = ["Member", "ZipMembers"]

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")

_STORED, _DEFLATED = 0, 8
_ENCRYPTED, _UTF8 = 1, 1 << 11
_DEFLATE_LIMIT = 1032  # two bits can stand for 258 bytes, no fewer
_PIECE = 1 << 20


@dataclass(frozen=True)
class Member:
    """One file in the archive: `stored` bytes at `start`, `size` once decompressed."""

    name: str
    flags: int
    method: int
    crc: int
    stored: int
    size: int
    header: int
    start: int


class ZipMembers:
    """The directory of a mapped zip archive."""

    def __init__(self, mapped: MappedFile) -> None:
        """Read the directory. Raises FormatError where it is damaged."""
        self._mapped = mapped
        self._checked: set[str] = set()
        count, size, self._directory = self._find_directory()
        self.members = self._read_directory(count, size)
        self._check_overlaps()

    def read(self, name: str, limit: int | None = None) -> Bytes:
        """Read a member, its CRC checked: a view if it is stored, else (limit given) decompressed.

        `limit`: how many bytes a compressed member may have; None refuses a compressed one.
        """
        member = self.members[name]
        if member.flags & _ENCRYPTED:
            raise self._mapped.error(member.header, f"member {brief(name)} is encrypted")
        if member.method == _DEFLATED and limit is not None:
            return self._inflate(member, limit)
        if member.method != _STORED:
            what = f"member {brief(name)} is compressed (method {member.method})"
            raise self._mapped.error(member.header, what)
        data = self._mapped.data[member.start : member.start + member.size]
        if name not in self._checked:
            self._check_crc(member, zlib.crc32(data.data))
            self._checked.add(name)
        return data

    def head(self, name: str, most: int) -> Bytes:
        """Read the first bytes of a member, at most `most`, its CRC not checked."""
        member = self.members[name]
        stored = self._mapped.data[member.start : member.start + member.stored]
        if member.method != _DEFLATED or member.flags & _ENCRYPTED:
            return stored[:most]
        try:
            piece = zlib.decompressobj(-zlib.MAX_WBITS).decompress(stored.data, most)
        except zlib.error as error:
            raise self._broken(member, error) from None
        return np.frombuffer(piece, np.uint8)

    def _inflate(self, member: Member, limit: int) -> Bytes:
        if member.size != limit:
            what = f"member {brief(member.name)} has {member.size} bytes, its header says {limit}"
            raise self._mapped.error(member.header, what)
        out = np.empty(member.size, np.uint8)
        filled = crc = 0
        for piece in self._pieces(member):
            if filled + len(piece) > member.size:
                raise self._broken(member, "it is longer than the directory says")
            out[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
            filled += len(piece)
            crc = zlib.crc32(piece, crc)
        if filled != member.size:
            raise self._broken(member, "it is shorter than the directory says")
        self._check_crc(member, crc)
        return out

    def _pieces(self, member: Member) -> Iterator[bytes]:
        """Decompress a member in pieces that are bounded whatever it claims."""
        engine = zlib.decompressobj(-zlib.MAX_WBITS)
        at, end = member.start, member.start + member.stored
        rest: bytes | memoryview = b""
        try:
            while not engine.eof:
                if not rest:  # in small steps, for zlib copies what it did not take
                    rest = self._mapped.view[at : min(end, at + _PIECE)]
                    at += len(rest)
                taken = len(rest)
                piece = engine.decompress(rest, _PIECE)
                rest = engine.unconsumed_tail
                if not piece and not taken:
                    raise self._broken(member, "it is cut short")
                yield piece
        except zlib.error as error:
            raise self._broken(member, error) from None
        if engine.unused_data or at < end:
            raise self._broken(member, "bytes follow its end")

    def _broken(self, member: Member, why: object) -> Exception:
        return self._mapped.error(member.start, f"member {brief(member.name)}: {why}")

    def _check_crc(self, member: Member, crc: int) -> None:
        # torch writes 0 where it was told not to compute CRCs.
        if member.crc not in (crc, 0):
            raise self._broken(member, "its CRC does not match: the file is damaged")

    def _find_directory(self) -> tuple[int, int, int]:
        """How many entries, how many bytes, and where."""
        mapped = self._mapped
        window = mapped.view[max(0, mapped.size - _END.size - 0xFFFF) :].tobytes()
        at = window.rfind(b"PK\5\6")
        while at >= 0:
            offset = mapped.size - len(window) + at
            if mapped.size - offset >= _END.size:
                _, disk, first, here, count, size, start, comment = _END.unpack_from(window, at)
                if offset + _END.size + comment == mapped.size:
                    break
            at = window.rfind(b"PK\5\6", 0, at)
        if at < 0:
            raise mapped.error(mapped.size, "the zip directory is missing: the file is cut short")
        # torch writes a zip64 end record always, others where the fields do not suffice.
        locator = max(0, offset - _LOCATOR.size)
        if bytes(mapped.view[locator : locator + 4]) == b"PK\6\7":
            disk, first, here, count, size, start, offset = self._find_wide(locator)
        if disk or first or here != count:
            raise mapped.error(offset, "a zip archive in several parts is not read")
        if start + size != offset or count * _CENTRAL.size > size:
            raise mapped.error(offset, "the zip directory is not where its end says")
        return count, size, start

    def _find_wide(self, locator: int) -> tuple[int, ...]:
        """Read the same fields from the zip64 end record, and where that starts."""
        mapped = self._mapped
        _, _, offset, disks = _LOCATOR.unpack_from(mapped.view, locator)
        if disks <= 1 and offset <= locator - _END64.size:
            fields = _END64.unpack_from(mapped.view, offset)
            if fields[0] == b"PK\6\6" and offset + 12 + fields[1] == locator:
                return (*fields[4:], offset)
        raise mapped.error(locator, "the zip64 end record is damaged or missing")

    def _read_directory(self, count: int, size: int) -> dict[str, Member]:
        mapped = self._mapped
        members: dict[str, Member] = {}
        at, end = self._directory, self._directory + size
        for _ in range(count):
            if at + _CENTRAL.size > end:
                raise mapped.error(at, "the zip directory is cut short")
            member, length = self._read_entry(at, end)
            if member.name in members:
                raise mapped.error(at, f"two members have the name {brief(member.name)}")
            members[member.name] = member
            at += length
        if at != end:
            raise mapped.error(at, "the zip directory is longer than its entries")
        return members

    def _read_entry(self, at: int, end: int) -> tuple[Member, int]:
        mapped = self._mapped
        fields = _CENTRAL.unpack_from(mapped.view, at)
        magic, _, _, flags, method, _, _, crc, stored, size = fields[:10]
        name_len, extra_len, comment_len, _, _, _, header = fields[10:]
        length = _CENTRAL.size + name_len + extra_len + comment_len
        if magic != b"PK\1\2" or at + length > end:
            raise mapped.error(at, "an entry of the zip directory is damaged")
        after = at + _CENTRAL.size + name_len
        raw = mapped.view[after - name_len : after].tobytes()
        extra = mapped.view[after : after + extra_len]
        size, stored, header = self._widen(at, extra, size, stored, header)
        try:
            name = raw.decode("utf-8" if flags & _UTF8 else "cp437")
        except UnicodeDecodeError:
            raise mapped.error(at, "a member's name is not UTF-8") from None
        start = self._check_local(at, header, raw, method)
        possible = size == stored if method == _STORED else size <= stored * _DEFLATE_LIMIT
        if start + stored > self._directory or (method in (_STORED, _DEFLATED) and not possible):
            raise mapped.error(at, f"the sizes of member {brief(name)} cannot be true")
        return Member(name, flags, method, crc, stored, size, header, start), length

    def _widen(self, at: int, extra: memoryview, *fields: int) -> list[int]:
        """Sizes and offset, taken from the zip64 extra field where they do not fit 32 bits."""
        values = list(fields)
        wanted = [i for i, value in enumerate(values) if value == 0xFFFFFFFF]
        here = 0
        while wanted and here + 4 <= len(extra):
            tag, length = struct.unpack_from("<2H", extra, here)
            here += 4
            if tag == 1 and 8 * len(wanted) <= min(length, len(extra) - here):
                found = struct.unpack_from(f"<{len(wanted)}Q", extra, here)
                for i, value in zip(wanted, found, strict=True):
                    values[i] = value
                return values
            here += length
        if wanted:
            raise self._mapped.error(at, "a zip64 size is missing")
        return values

    def _check_local(self, at: int, header: int, raw: bytes, method: int) -> int:
        """Where the member's bytes start: its own header must agree with the directory."""
        if header + _LOCAL.size <= self._directory:
            fields = _LOCAL.unpack_from(self._mapped.view, header)
            names = header + _LOCAL.size
            same = self._mapped.view[names : names + fields[9]] == raw
            if fields[0] == b"PK\3\4" and fields[3] == method and same:
                return names + int(fields[9]) + int(fields[10])
        raise self._mapped.error(at, "a member's header does not match the zip directory")

    def _check_overlaps(self) -> None:
        end = 0
        for member in sorted(self.members.values(), key=lambda member: member.header):
            if member.header < end:
                what = f"member {brief(member.name)} overlaps the one before"
                raise self._mapped.error(member.header, what)
            end = member.start + member.stored
