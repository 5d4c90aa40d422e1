"""Marks: small files that say of a snapshot that it stays, or is no step any more.

Their bytes are in format.md, section 10.
"""

from __future__ import annotations

import re

import msgspec

from .errors import FormatError
from .file import Entry
from .storage import Listed, Storage, is_shortage

__all__ = ["HIDDEN", "PIN", "Mark", "read_mark", "write_mark"]

PIN, HIDDEN = ".pin", ".hidden"

_ID_BYTES = 16
_CONTENT = re.compile(rb"[0-9a-f]{32}\n")
_NAME = re.compile(r"[0-9]{10,}-([0-9a-f]{16})\.\w+")


class Mark(msgspec.Struct, frozen=True):
    """A mark of the store."""

    name: str
    kind: str
    """`PIN` or `HIDDEN`."""
    ids: tuple[bytes, ...]
    """Of its snapshot: as the content tells it, and the first half, as the name does."""


def read_mark(storage: Storage, listed: Listed) -> Mark:
    """Read a mark. One whose content is damaged still holds if its name tells whose it is.

    Raises `FormatError` if neither does, `FileNotFoundError`.
    """
    kind = PIN if listed.name.endswith(PIN) else HIDDEN
    content = b""
    try:
        with storage.open(listed.name) as source:
            content = source.read(0, 2 * _ID_BYTES + 2).tobytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        if is_shortage(error):
            raise
    # Both: a flipped bit makes of an id another one that looks as good.
    named = _NAME.fullmatch(listed.name)
    told = [content.decode()] if _CONTENT.fullmatch(content) else []
    told += [named[1]] if named else []
    if not told:
        raise FormatError(f"{storage / listed.name}: offset 0: not a mark")
    return Mark(listed.name, kind, tuple(map(bytes.fromhex, told)))


def write_mark(storage: Storage, entry: Entry, kind: str) -> None:
    """Mark a snapshot, durably. Raises `OSError`; there is no mark then, or a good one."""
    name = f"{entry.meta.step:010d}-{entry.id[:8].hex()}{kind}"
    storage.commit(name, f"{entry.id.hex()}\n".encode())
