"""The files of a store by what they hold, as of the last look at them.

Everything is read from the files' contents; names are hints (format.md, section 10).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from .catalog import Catalog
from .commits import may_be_newest, orphans, own
from .errors import warn
from .file import RESIDUAL, SUFFIX, Entry
from .marks import HIDDEN, PIN
from .share import sequence_of
from .storage import NO_FILES, Listed, Storage

__all__ = ["Index"]

# Listings until two are equal, at most.
_TRIES = 10


class Index:
    """The snapshots and residuals of a storage by id, as of the last `refresh`."""

    def __init__(self, storage: Storage) -> None:
        """Name the storage; `refresh` reads it."""
        self.storage = storage
        # These are never changed, only replaced: other threads may be looking at them.
        self.catalog = Catalog()
        self.entries: dict[bytes, Entry] = {}
        self.residuals: dict[bytes, Entry] = {}
        self._links: set[str] = set()
        self.pinned: frozenset[bytes] = frozenset()
        self.hidden: frozenset[bytes] = frozenset()
        # Not dropped, but some file of their chain is not there: by id, with the parent's.
        self.orphans: dict[bytes, bytes] = {}
        self._warned: frozenset[bytes] = frozenset()
        self._damaged: dict[tuple[Listed, bytes], str] = {}
        # The newest snapshot, and the entries that it was found among.
        self._newest: tuple[dict[bytes, Entry], Entry | None] = ({}, None)
        # Sequence number of what was last committed through this object, where that is known.
        self.written: int | None = None
        self._refreshing = threading.RLock()

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong with files that are no use, by name."""
        return self.catalog.problems

    def refresh(self, *, alone: bool = False, all_files: bool = True) -> None:
        """Read what has been added, and forget what is gone. Warns of files that are no use.

        alone: nobody changes the directory meanwhile, for its writer is the caller. all_files: look
        at files that are known, too; if not, one that others have changed in place, beyond the
        newest snapshot's, is taken for what it was. Raises `UnknownVersionError` where a file is of
        a newer ckptz; nothing has been forgotten then.
        """
        with self._refreshing:
            before = self.problems
            listed = Catalog.listed(self.storage, NO_FILES if all_files else self._as_they_were())
            if not (alone and self.catalog.is_of(listed)) or self.catalog.joined.dangling:
                self._read(listed, alone)
            found = [text for name, text in self.problems.items() if before.get(name) != text]
            links = {name for name in self.storage.links if name.endswith(SUFFIX)}
            found += [
                f"{self.storage / name}: a symbolic link, which is not followed; "
                "put the file itself there"
                for name in sorted(links - self._links)
            ]
            self._links = links
        for text in found:
            warn(f"skipped: {text}")
        self._warn_of_orphans()

    def _read(self, listed: list[Listed], alone: bool) -> None:
        """Take in what a listing tells that is not known."""
        for _ in range(_TRIES):
            self.catalog = Catalog.read(self.storage, listed, self.catalog)
            self._damaged = {
                key: text for key, text in self._damaged.items() if key[0] in self.catalog.files
            }
            self._index()
            # A listing is not of one moment: it may lack a residual that has been deleted, and
            # the newer snapshot that came before. A second one that is equal has both.
            settled = alone and not self.catalog.joined.dangling
            again = listed if settled else Catalog.listed(self.storage)
            if again == listed:
                break
            listed = again

    def _as_they_were(self) -> dict[str, Listed]:
        """Return by name the files that a save need not look at: it neither reads nor deletes any.

        It goes on from the newest snapshot, and what was damaged may have been put right.
        """
        known = {one.name: one for one in self.catalog.files}
        newest = self.newest()
        for entry in [] if newest is None else self.ancestors(newest):
            known.pop(entry.name, None)
        for listed, _ in self._damaged:
            known.pop(listed.name, None)
        return known

    def _warn_of_orphans(self) -> None:
        """Warn of what the line lacks, unless that may be in files that were warned of."""
        catalog, known = self.catalog, self._warned
        lost = [e for e in self.line() if e.id in self.orphans] if self.orphans else []
        self._warned = frozenset(self.orphans[entry.id] for entry in lost)
        if self._warned <= known or catalog.unreadable or catalog.joined.dangling:
            return
        first = lost[-1]
        count = f"{len(lost)} snapshot{'s' if len(lost) > 1 else ''}"
        warn(
            f"{self.storage}: {count} cannot be restored and will not be deleted: "
            f"{first.name} needs snapshot {self.orphans[first.id].hex()}, which the store does "
            "not hold; put its file back"
        )

    def _index(self) -> None:
        """Find snapshots and residuals by id; of copies, the best one (format.md, section 10)."""
        snapshots: dict[bytes, Entry] = {}
        residuals: dict[bytes, Entry] = {}
        for entry in self.catalog.entries():
            ids, name = (snapshots, entry.id)
            if entry.kind == RESIDUAL:
                ids, name = (residuals, entry.meta.parent or b"")
            known = ids.get(name)
            if known is None or self._worth(entry) <= self._worth(known):
                ids[name] = entry
        snapshots = own(snapshots)
        self.pinned = self._marked(snapshots, PIN)
        hidden = {entry.id for entry in snapshots.values() if entry.hidden}
        self.hidden = self._marked(snapshots, HIDDEN) | hidden
        lost = orphans(snapshots)
        self.orphans = {one: lost[one] for one in lost.keys() - self.hidden}
        self.entries, self.residuals = snapshots, residuals

    def _marked(self, ids: Iterable[bytes], kind: str) -> frozenset[bytes]:
        marks = [mark for mark in self.catalog.marks.values() if mark.kind == kind]
        named = {one for mark in marks for one in mark.ids}
        return frozenset(i for i in ids if i in named or i[: len(i) // 2] in named)

    def _worth(self, entry: Entry) -> tuple[bool, bool, int]:
        return entry.key in self._damaged, entry.hidden, entry.missing

    def mark_damaged(self, entry: Entry, error: Exception | None = None) -> bool:
        """Remember that an entry, or the ancestor that the error names, cannot be restored.

        As long as its file stays as it is. Returns whether that is news.
        """
        culprit = self.entries.get(getattr(error, "snapshot", None) or b"", entry)
        with self._refreshing:
            if culprit.key in self._damaged:
                return False
            self._damaged = {**self._damaged, culprit.key: str(error or "")}
            self._index()
        return True

    def is_damaged(self, entry: Entry) -> bool:
        """Whether an entry is known to be damaged."""
        return entry.key in self._damaged

    @property
    def last_sequence(self) -> int:
        """Highest sequence number in the store; -1 if it is empty.

        A file that cannot be read may have the next one, if it is as new as the newest that can.
        """
        newest, unreadable = self.newest(), self.catalog.unreadable
        hidden = 0
        if unreadable:
            changed = max((entry.listed.changed for entry in self.entries.values()), default=0)
            hidden = sum(may_be_newest(one.name) and one.changed >= changed for one in unreadable)
        last = -1 if newest is None else newest.meta.sequence
        # Of a commit the name is enough, and what makes writers collide.
        named = (sequence_of(one.name) for one in (*self.catalog.files, *unreadable))
        return max(last, *named, -1) + hidden

    def newest(self) -> Entry | None:
        """Return the snapshot that was committed last."""
        entries, newest = self._newest
        if entries is not self.entries:
            entries = self.entries
            newest = max(entries.values(), key=lambda e: (e.meta.sequence, e.id), default=None)
            self._newest = entries, newest
        return newest

    def line(self, tip: Entry | None = None) -> list[Entry]:
        """Return a snapshot (the newest) and what came before it on its line, newest first."""
        tip = tip or self.newest()
        if tip is None:
            return []
        end = tip.meta.sequence
        # Where stores have been mixed, several snapshots may have one sequence number.
        chain = {layer.meta.sequence: layer.id for layer in self.ancestors(tip)}
        found = [
            (number, entry.id, entry)
            for entry in self.entries.values()
            if (number := entry.meta.sequence) <= end and chain.get(number, entry.id) == entry.id
        ]
        for first, last in tip.meta.rewound:
            found = [one for one in found if not first <= one[0] <= last]
        return [entry for _, _, entry in sorted(found, reverse=True)]

    def ancestors(self, entry: Entry) -> Iterator[Entry]:
        """Yield an entry, its parent and so on, as far as they are there."""
        entries, seen = self.entries, set()
        found: Entry | None = entry
        while found is not None and found.id not in seen:
            seen.add(found.id)
            yield found
            found = entries.get(found.meta.parent or b"")
