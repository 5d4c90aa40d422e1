"""How many bytes a restore reads, and a bound on that.

Whole files count, as `info` states them: those of a snapshot's chain, and its residual.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from .errors import warn
from .schema import Schema
from .storage import Listed
from .store import Entry, Store

__all__ = ["ReadLimit", "Room", "TooMuchError", "bytes_of", "files_read"]


def files_read(store: Store, entry: Entry) -> set[Listed]:
    """Return the files that a restore of a snapshot reads. Raises `MissingSnapshotError`."""
    files = {layer.listed for layer in store.chain(entry)}
    residual = store.residuals.get(entry.id)
    return files if residual is None else files | {residual.listed}


def bytes_of(files: Iterable[Listed]) -> int:
    """Return the bytes of files."""
    return sum(listed.size for listed in files)


class TooMuchError(Exception):
    """A delta with which a restore would read more than it may: a full snapshot takes its place."""


class Room(msgspec.Struct, frozen=True):
    """What a delta may take."""

    most: float
    """Bytes of its file and its residual."""
    beside: int = 0
    """Bytes that are needed beside its file in any case: of the residual of an older step."""

    def fits(self, size: int, residual: int) -> bool:
        """Whether a delta of `size` bytes, with such a residual, is within this."""
        return size + max(residual, self.beside) <= self.most

    def check(self, size: int, residual: int = 0) -> None:
        """Raise `TooMuchError` unless it is."""
        if not self.fits(size, residual):
            raise TooMuchError


class ReadLimit:
    """Keeps what a restore of any step reads within a bound."""

    def __init__(self, store: Store, most: int | None, merges: bool) -> None:
        """Say how many bytes; None: no bound. merges: whether saves merge files.

        Raises `ValueError` for what can be no bound.
        """
        if most is not None and (type(most) is not int or most < 1):
            raise ValueError(f"max_restore_bytes={most!r} is not an integer from 1 up")
        self._store = store
        self._most = most
        self._merges = merges
        self._warned = False
        self.full_next = False
        """Whether the next snapshot must be full: a merge has been refused."""

    def room(self, base: Entry, schema: Schema) -> Room:
        """Return what a delta against a snapshot may take."""
        if self._most is None:
            return Room(math.inf)
        store = self._store
        chain = store.chain(store.entries.get(base.id, base))
        left = self._most - bytes_of({layer.listed for layer in chain})
        if not self._merges:
            return Room(left)
        # Merged, each of these steps reads all of them, and a schema that the deltas do without.
        kept = [layer.id for layer in chain if layer.id in store.pinned]
        sizes = [store.residuals[one].size for one in kept if one in store.residuals]
        return Room(left - len(schema.raw), max(sizes, default=0))

    def expects_room(self, base: Entry, schema: Schema, exact: bool) -> bool:
        """Whether a delta is worth trying: one like the last of the base's chain would do.

        A guess from the store alone, so that a manager that is opened anew writes the same. exact:
        whether there will be a residual.
        """
        if self._most is None:
            return True
        entry = self._store.entries.get(base.id, base)
        size = 0 if entry.meta.full else entry.listed.size // entry.sharing
        residual = self._store.residuals.get(entry.id) if exact else None
        room = self.room(base, schema)
        return not self.full_next and room.fits(size, 0 if residual is None else residual.size)

    def note_full(self, entry: Entry) -> None:
        """Take note of a full snapshot. Warns, once, if even that is beyond the bound."""
        self.full_next = False
        if self._most is None or self._warned:
            return
        found = bytes_of(files_read(self._store, entry))
        if found > self._most:
            self._warned = True
            warn(
                f"{self._store.storage}: a restore of step {entry.meta.step}, a full snapshot, "
                f"reads {found} bytes, more than max_restore_bytes={self._most}; it is saved all "
                "the same, and so is every step like it: set max_restore_bytes above its size"
            )

    def admits(self, merged: Sequence[Entry], size: int) -> bool:
        """Whether the files of snapshots may become one of `size` bytes.

        If a step were beyond the bound then, by more than it is now, warns of it.
        """
        if self._most is None:
            return True
        sources = {entry.listed for entry in merged}
        for entry in self._store.restorable():
            files = files_read(self._store, entry)
            found = bytes_of(files - sources) + size
            if not files.isdisjoint(sources) and found > max(self._most, bytes_of(files)):
                steps = [one.meta.step for one in merged]
                warn(
                    f"{self._store.storage}: the files of steps {min(steps)} to {max(steps)} are "
                    f"not merged: a restore of step {entry.meta.step} would read {found} bytes, "
                    f"and max_restore_bytes={self._most}"
                )
                return False
        return True
