"""Choosing what to restore: the best snapshot that turns out to be good when it is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from .errors import FormatError, MissingKeyError, MissingSnapshotError, warn
from .restore import OpenChain, ResidualGoneError
from .storage import Listed, is_shortage
from .store import Entry, Store

__all__ = ["SnapshotReader"]

_T = TypeVar("_T")
# Of an entry, and whether it may raise `ResidualGoneError`.
_Use = Callable[[Entry, bool], _T]


class SnapshotReader:
    """Reads snapshots of one store, going on to another where one is damaged."""

    def __init__(self, store: Store, threads: int) -> None:
        """Name the store; nothing is read yet."""
        self._store = store
        self._threads = threads

    def open(self, entry: Entry, look_again: bool, residual: bool = True) -> OpenChain:
        """Open the files of a snapshot, with its residual if that is there and wanted."""
        return OpenChain.of_store(
            self._store,
            entry,
            residual=self._store.residuals.get(entry.id) if residual else None,
            threads=self._threads,
            look_again=look_again,
        )

    def use(self, step: int | None, tip: Entry | None, use: _Use[_T]) -> tuple[Entry, _T]:
        """Use the best generation of a step, or the newest snapshot, that is good.

        Of what fails on the way damage is remembered, and if something better is found warned of.
        """
        failed: list[Exception] = []
        tried: set[tuple[Listed, bytes]] = set()
        lost: dict[bytes, Exception] = {}
        gone: dict[int, Entry] = {}
        while (entry := self._candidate(step, tip, tried, bool(failed))) is not None:
            try:
                found = use(entry, entry.id not in lost)
            except MissingKeyError:
                raise
            except (FormatError, MissingSnapshotError) as error:
                failed.append(error)
                # What is damaged may be another one's file of which there is a copy.
                if not self._store.mark_damaged(entry, error):
                    tried.add(entry.key)
            except ResidualGoneError as error:
                lost[entry.id] = error
            except OSError as error:
                if is_shortage(error):
                    raise
                if self._has_moved(entry, error):
                    continue
                failed.append(error)
                tried.add(entry.key)
                if isinstance(error, FileNotFoundError):
                    gone[id(error)] = entry
            else:
                # A writer deletes what newer steps have taken the place of.
                told = [
                    error
                    for error in failed
                    if id(error) not in gone or gone[id(error)].meta.sequence > entry.meta.sequence
                ]
                self._tell(entry, told, lost)
                return entry, found
            # Files may have come or gone since the store was read.
            self._store.refresh()
        if step is not None and failed and isinstance(failed[0], FileNotFoundError):
            self._store.at(step, tip)  # raises, unless it has come back meanwhile
        raise failed[0] if failed else self._nothing()

    def _candidate(
        self,
        step: int | None,
        tip: Entry | None,
        tried: Collection[tuple[Listed, bytes]],
        again: bool,
    ) -> Entry | None:
        entries: Sequence[Entry]
        if step is None:
            entries = list(self._store.restorable(tip))
        elif again:
            entries = self._store.steps(tip).get(step, [])
        else:
            entries = self._store.at(step, tip)
        return next((entry for entry in entries if entry.key not in tried), None)

    def _has_moved(self, entry: Entry, error: OSError) -> bool:
        """Whether a file is gone because a writer has put what it held into another one."""
        if not isinstance(error, FileNotFoundError):
            return False
        self._store.refresh()
        found = self._store.entries.get(entry.id)
        if found is None or not self._store.can_restore(found):
            return False
        gone = str(error.filename)
        return all(str(self._store.storage / one.name) != gone for one in self._store.chain(found))

    def _nothing(self) -> MissingSnapshotError:
        problems = list(self._store.problems.values())
        why = f": {problems[-1]}" if problems else ""
        return MissingSnapshotError(f"{self._store.storage}: no snapshot can be restored{why}")

    def _tell(self, entry: Entry, failed: list[Exception], lost: dict[bytes, Exception]) -> None:
        """Warn of what could not be used in place of an entry, or with it."""
        for error in failed:
            warn(f"restored step {entry.meta.step} in spite of this: {error}")
        newest = self._store.newest()
        if entry.id in lost and newest is not None and newest.id == entry.id:
            warn(
                f"the residual of step {entry.meta.step} is lost, the reconstruction is used: "
                f"{lost[entry.id]}"
            )

    def confirm(self, entries: Sequence[Entry]) -> None:
        """Read snapshots to see whether they can be restored; mark those that cannot."""
        for entry in entries:
            try:
                with self.open(entry, False, residual=False) as chain:
                    chain.check()
            except (FormatError, MissingSnapshotError, OSError) as error:
                if is_shortage(error):
                    raise
                self._store.mark_damaged(entry, error)
                warn(f"step {entry.meta.step} is damaged and will be saved anew: {error}")
