"""What a store knows of a snapshot in one of its files, and the names of these."""

from __future__ import annotations

import msgspec

from .. import codec
from ..errors import FormatError
from ..metadata import Stored
from ..share import Share
from ..snapshot import Meta
from ..storage import Listed
from .layout import RESIDUAL_SUFFIX, SUFFIX
from .read import FileReader

__all__ = ["Entry", "file_name", "merged_name"]


class Entry(msgspec.Struct, frozen=True):
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
