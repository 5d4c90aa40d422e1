"""Parts and commits: what says that files of one attempt belong together (format.md, section 12).

ckptz writes and reads snapshots of one part.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from .errors import FormatError, UnknownVersionError
from .snapshot import Meta

__all__ = [
    "COMMIT",
    "PART",
    "PART_SUFFIX",
    "Share",
    "commit_name",
    "part_name",
    "sequence_of",
    "share_of",
]

PART_SUFFIX = ".part.ckptz"

_COMMIT_NAME = re.compile(r"commit-([0-9]{20})\.ckptz")
# Kinds of files.
PART, COMMIT = 3, 4


class Share(NamedTuple):
    """What a part and its commit have in common."""

    nonce: bytes
    """16 random bytes of one attempt to save."""
    digest: bytes | None = None
    """In a commit: the id of the part."""
    name: str = ""
    """In a commit: the name of the part's file, for messages."""

    @classmethod
    def new(cls) -> Share:
        """Return the share of a new attempt."""
        return cls(os.urandom(16))

    def of_part(self) -> list[Any]:
        """Return the field `part` of a part's meta."""
        return [0, 1, self.nonce]

    def of_commit(self) -> list[Any]:
        """Return the field `part` of the commit's meta."""
        return [1, self.nonce, [self.digest], [self.name]]


def share_of(kind: int, meta: Meta) -> Share | None:
    """Return what the meta of a part or a commit says. Raises `FormatError`.

    Other files have none, but a part that has been merged into one is as it was.
    """
    field = meta.part
    if field is None and kind not in (PART, COMMIT):
        return None
    match field:
        case [int(rank), int(ranks), bytes(nonce)] if kind != COMMIT and 0 <= rank < ranks:
            share = Share(nonce)
        case [
            int(ranks),
            bytes(nonce),
            [bytes(digest), *_] as digests,
            [str(name), *_] as names,
        ] if kind == COMMIT and ranks == len(digests) == len(names) and len(digest) == 16:
            share = Share(nonce, digest, name)
        case _:
            raise FormatError("meta: a field `part` that files of this kind do not have")
    if len(nonce) != 16 or isinstance(ranks, bool):
        raise FormatError("meta: a field `part` with a wrong nonce or number")
    if ranks != 1:
        raise UnknownVersionError(f"a snapshot in {ranks} parts; this ckptz reads those in one")
    return share if kind in (PART, COMMIT) else None


def part_name(step: int, share: Share) -> str:
    """Return the name under which a part is written."""
    return f"{step:010d}-{share.nonce[:8].hex()}{PART_SUFFIX}"


def commit_name(sequence: int) -> str:
    """Return the name under which a commit is written: two with one number collide."""
    return f"commit-{sequence:020d}.ckptz"


def sequence_of(name: str) -> int:
    """Return the sequence number that a commit's name says; -1 if it is no commit's."""
    # Most names are others', and this is asked of every file of a store.
    found = _COMMIT_NAME.fullmatch(name) if name.startswith("commit-") else None
    return -1 if found is None else int(found[1])
