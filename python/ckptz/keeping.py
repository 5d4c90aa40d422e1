"""The part of `CheckpointManager` that knows the steps and decides which of them stay."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from .errors import FormatError, MissingSnapshotError, check_process, warn
from .file import Entry
from .loss import warn_unless_finite
from .marks import HIDDEN, PIN, write_mark
from .merge import check_mergeable, files_to_merge, merge_files
from .retention import Plan, Retention, plan_files
from .saving import Saver
from .snapshot import LARGEST_STEP
from .state import FlatState
from .store import Store
from .writer import SnapshotWriter

__all__ = ["Collected", "Keeper", "KeepsSteps"]


class Collected(msgspec.Struct, frozen=True):
    """What `gc` has deleted, or would."""

    kept: list[int]
    """Steps that can be restored still."""
    dropped: list[int]
    """Steps that cannot any more."""
    files: list[str]
    """Names of the files that are gone."""
    bytes: int
    """Of these files."""


class Keeper:
    """Has a store keep to its rules. All of it is for the store's writer alone."""

    def __init__(
        self, store: Store, writer: SnapshotWriter, rules: Retention, max_files: int | None
    ) -> None:
        """Say which rules. max_files: how many files a restore reads at most."""
        if max_files is not None and (type(max_files) is not int or max_files < 3):
            raise ValueError(f"max_files={max_files!r} is not an integer from 3 up")
        if max_files is not None:
            check_mergeable(store)
        self.rules = rules
        self._store = store
        self._writer = writer
        self._max_files = max_files

    def after_save(self, entry: Entry, before: Entry | None, flat: FlatState) -> None:
        """Tell of a snapshot what must be told, and drop what the rules do not keep.

        The save has succeeded, whatever happens.
        """
        warn_unless_finite(entry, before, flat)
        try:
            self._move_pin(entry)
            if self.rules.drops and self.plan().does_something:
                # Nothing goes in favour of what is no good any more.
                self._store.refresh(alone=True)
                self.collect(self.plan())
            newest = self._store.newest()
            if self._max_files is not None and newest is not None:
                # One file is the residual's.
                run = files_to_merge(self._store.chain(newest), self._max_files - 1)
                if run and self.merge(run) is None:
                    self._writer.limit.full_next = True
        except (OSError, FormatError) as error:
            warn(f"older steps could not be put in order, the next save tries again: {error}")

    def plan(self) -> Plan:
        """Plan what the rules ask for."""
        store, tip = self._store, self._writer.tip
        steps = [generations[0] for generations in store.steps().values()]
        # A pin may still be at an older generation, which is no step of its own.
        pinned = {entry.id for entry in store.pinned_steps().values()}
        kept = self.rules.kept(steps, pinned)
        return plan_files(store, kept, [] if tip is None else [tip.id])

    def _move_pin(self, entry: Entry) -> None:
        """Have a new generation take over the pin of older ones of its step."""
        store = self._store
        if not store.pinned:
            return
        older = {e.id for e in store.steps().get(entry.meta.step, ()) if e.id != entry.id}
        if not older.isdisjoint(store.pinned):
            write_mark(store.storage, entry, PIN)
            self.unpin(older)

    def unpin(self, ids: Collection[bytes]) -> None:
        """Delete the pins of some snapshots."""
        store = self._store
        for listed, mark in store.catalog.marks.items():
            if mark.kind == PIN and any(one.startswith(mark.ids) for one in ids):
                store.storage.remove(listed.name)
        store.storage.sync()
        store.refresh(alone=True)

    def collect(self, plan: Plan) -> None:
        """Carry out a plan. A crash leaves some of it to be done, and nothing wrong."""
        storage = self._store.storage
        try:
            for entry in plan.hide:
                write_mark(storage, entry, HIDDEN)
            if plan.remove:
                storage.sync()  # whatever takes their place is there to stay
            for files in (plan.remove, plan.idle):
                for listed in files:
                    storage.remove(listed.name)
                if files:
                    storage.sync()
        finally:
            self._store.refresh(alone=True, all_files=False)

    def merge(self, entries: Sequence[Entry]) -> str | None:
        """Merge files, and delete them once that is durable; None where they stay as they are."""
        store = self._store
        name = merge_files(store, entries, self._writer.limit.admits)
        if name is not None:
            store.refresh(alone=True)
            try:
                self.collect(plan_files(store, (), store.entries.keys() - store.hidden))
            finally:
                self._writer.files_moved()
        return name


class KeepsSteps:
    """Lists, pins, deletes and collects steps; the base of `CheckpointManager`."""

    _store: Store
    _writer: SnapshotWriter
    _saver: Saver
    _keeper: Keeper
    _process: int
    _readonly: bool

    def _check_process(self) -> None:
        check_process(self._process, repr(str(self._store.storage)))

    @staticmethod
    def _check_step(step: Any) -> int:
        try:
            number = -1 if isinstance(step, bool) else int(operator.index(step))
        except TypeError:
            number = -1
        if not 0 <= number <= LARGEST_STEP:
            raise ValueError(f"step={step!r} is not an integer from 0 to 2^63 - 1")
        return number

    def _wanted(self, step: int | None) -> int | None:
        self._check_process()
        return None if step is None else self._check_step(step)

    def all_steps(self) -> list[int]:
        """Return the steps that can be restored, in numeric order."""
        self._check_process()
        return list(self._store.steps(self._writer.tip))

    def latest_step(self) -> int | None:
        """Return the highest step that can be restored, None if there is none."""
        return max(self.all_steps(), default=None)

    def _changing(self) -> AbstractContextManager[None]:
        """Be the store's writer, with the store as it is now."""
        self._check_process()
        if self._readonly:
            raise ValueError("this manager is read-only")
        return self._saver.changing()

    def _best(self, step: int | None) -> Entry:
        number = self._wanted(step)
        if number is None:
            number = max(self._store.steps(self._writer.tip), default=-1)
        return self._store.at(number, self._writer.tip)[0]

    def pin(self, step: int | None = None) -> None:
        """Keep a step (the newest), whatever the rules say, until `unpin`.

        It keeps its residual if it has one, as the newest does: then it stays exact. Saved again
        with `overwrite=True`, what is saved then is pinned, instead of what was. Durable when
        this returns. Raises `MissingSnapshotError`, `StoreLockedError` or `OSError`.
        """
        with self._changing():
            store = self._store
            entry = self._best(step)
            if entry.id not in store.pinned:
                write_mark(store.storage, entry, PIN)
                store.refresh(alone=True)

    def unpin(self, step: int) -> None:
        """Let a pinned step go when the rules say so; its residual goes with the next save."""
        with self._changing():
            self._keeper.unpin({e.id for e in self._store.at(step, self._writer.tip)})

    def pinned_steps(self) -> list[int]:
        """Return the pinned steps that can be restored, in numeric order."""
        return list(self._store.pinned_steps(self._writer.tip))

    def delete(self, step: int) -> None:
        """Delete a step: it cannot be restored any more, and its files go unless others need them.

        Durable when this returns. Raises `MissingSnapshotError`, `ValueError` for a pinned step,
        `StoreLockedError` or `OSError`; the step is then there as before, or gone.
        """
        with self._changing():
            store = self._store
            gone = {entry.id for entry in store.at(step, self._writer.tip)}
            if gone & store.pinned:
                raise ValueError(f"step {step} is pinned; unpin it first")
            tip = self._writer.tip
            if tip is not None and tip.id in gone:
                raise ValueError(f"step {step} is where the next save goes on from")
            self._keeper.collect(plan_files(store, (), store.entries.keys() - gone - store.hidden))

    def gc(self, *, dry_run: bool = False) -> Collected:
        """Delete the steps that the rules do not keep, and every file that no kept step needs.

        So what a rewind has left behind goes, older generations of a step, copies, and what a
        crash has left. Files that cannot be read are left alone, and what may need them too.
        dry_run: only tell. Raises `StoreLockedError` or `OSError`.
        """
        if dry_run:
            self._store.refresh()
            return _report(self._keeper.plan())
        with self._changing():
            plan = self._keeper.plan()
            self._keeper.collect(plan)
            return _report(plan)

    def merge(self, steps: Iterable[int] | None = None) -> list[str]:
        """Put the layers of steps, and of what has been dropped between them, into one file.

        What is restored of any step stays the same; a restore has fewer files to open, and layers
        of dropped steps that add nothing are left out. None: all deltas on each full snapshot.
        What would have a restore read more than `max_restore_bytes` is left, with a warning.
        Returns the names of the new files. Raises `MissingSnapshotError`, `FormatError` for
        damaged files, `StoreLockedError` or `OSError`, `CkptzError` where the store is in an
        object store; nothing is lost then.
        """
        check_mergeable(self._store)
        with self._changing():
            store = self._store
            wanted = _all_runs(store) if steps is None else [self._run(steps)]
            return [name for run in wanted if (name := self._keeper.merge(run)) is not None]

    def _run(self, steps: Iterable[int]) -> list[Entry]:
        store = self._store
        found = [self._best(step) for step in sorted(set(steps))]
        if not found:
            raise MissingSnapshotError(f"{store.storage}: no steps to merge")
        first = min(entry.meta.sequence for entry in found)
        layers = store.chain(max(found, key=lambda e: e.meta.sequence))
        return found + [e for e in layers if e.id in store.hidden and e.meta.sequence > first]


def _all_runs(store: Store) -> list[list[Entry]]:
    """Return what stands on each full snapshot."""
    runs: dict[bytes, list[Entry]] = {}
    for one in store.closure(entry.id for entry in store.restorable()):
        chain = store.chain(store.entries[one])
        if len(chain) > 1:
            runs.setdefault(chain[0].id, []).append(chain[-1])
    return list(runs.values())


def _report(plan: Plan) -> Collected:
    files = [listed.name for listed in plan.gone]
    return Collected(plan.kept, plan.dropped, files, sum(listed.size for listed in plan.gone))
