"""Checking a store: every stored byte and every decoded chunk against its checksum."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from .errors import FormatError, MissingSnapshotError
from .file import RESIDUAL, FileReader
from .restore import OpenChain
from .storage import Listed, is_shortage
from .store import Entry, Store

__all__ = ["Problem", "VerifyReport", "verify_store"]

Progress = Callable[[int], None]


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    file: str
    what: str
    step: int | None = None
    """The step that it hides, where that is known."""


class VerifyReport(msgspec.Struct):
    """What `verify` found."""

    steps: list[int] = msgspec.field(default_factory=list)
    """Steps of the line, all of whose bytes are good."""
    snapshots: int = 0
    """Good snapshots, those off the line included."""
    problems: list[Problem] = msgspec.field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify_store(
    store: Store, threads: int, progress: Progress | None = None, tip: Entry | None = None
) -> VerifyReport:
    """Read everything. Snapshots found damaged count as such in `store` from here on.

    tip: where the line of the report's steps ends, the newest by default. Raises `OSError` for a
    lack of descriptors or memory, which says nothing of the files.
    """
    store.refresh()
    check = _Check(store, threads, progress)
    check.payloads()
    # Others may refresh the store meanwhile: what is new then is not looked at.
    # What is no step is checked as a layer of steps; it may lack what none of them needs.
    shown = (entry for entry in store.entries.values() if entry.id not in store.hidden)
    entries = sorted(shown, key=lambda e: e.meta.sequence)
    for entry in reversed(entries):
        check.chain_to(entry)
    for entry in entries:
        if entry.id in check.good:
            check.residual_of(entry)
    problems = [Problem(name, text) for name, text in store.problems.items()]
    problems += [*check.damaged.values(), *check.marks()]
    problems.sort(key=lambda problem: problem.file)
    return VerifyReport(check.steps(tip), len(check.good), problems + check.hidden(entries))


class _Check:
    """One check of a store: each file is read, and each layer decoded, once if it is good."""

    def __init__(self, store: Store, threads: int, progress: Progress | None) -> None:
        self.store = store
        self.threads = threads
        self.progress = progress
        self.damaged: dict[str, Problem] = {}
        """One a file, by its name."""
        self.bad: set[Listed] = set()
        """Files whose payload does not match its checksum, whether or not they decode."""
        self.good: set[bytes] = set()
        """Ids of snapshots that decode, as all do that they need."""
        self.broken: dict[bytes, str] = {}
        """Of snapshots that do not, though all do that they need: the file."""

    def payloads(self) -> None:
        """Read the payload of every file, copies included."""
        held = self.store.catalog.entries()
        by_file = self.store.catalog.by_file()
        for entry in sorted(by_file.values(), key=lambda e: e.name):
            try:
                with self.store.storage.open(entry.name) as source:
                    FileReader(source).check_payload()
            except (FormatError, OSError) as error:
                if is_shortage(error):
                    raise
                if _gone(entry, error):
                    continue
                self.bad.add(entry.listed)
                self._note(entry, error)
            if self.progress is not None:
                self.progress(entry.payload_bytes)
        good = {_content(entry) for entry in held if entry.listed not in self.bad}
        for entry in held:
            if entry.listed in self.bad and _content(entry) in good:
                self.store.mark_damaged(entry)  # its copy stands in for it

    def _note(self, entry: Entry, error: Exception) -> None:
        step = None if entry.kind == RESIDUAL or entry.sharing > 1 else entry.meta.step
        self.damaged[entry.name] = Problem(entry.name, str(error), step)

    def chain_to(self, wanted: Entry) -> None:
        """Decode what leads to a snapshot, as far as it is good."""
        while (tip := self._end_of_good(wanted)) is not None and tip.id not in self.good:
            try:
                with OpenChain.of_store(self.store, tip, threads=self.threads) as opened:
                    layers = opened.layers
                    opened.check(self.progress)
            except (FormatError, MissingSnapshotError, OSError) as error:
                if is_shortage(error):
                    raise
                self._blame(self._culprit(tip, error), error)
            else:
                self.good.update(layer.id for layer in layers)

    def _end_of_good(self, wanted: Entry) -> Entry | None:
        """Return the last layer on the way to a snapshot before one that is known to be broken."""
        try:
            chain = self.store.chain(self._now(wanted))
        except MissingSnapshotError:
            return None
        broken = (place for place, layer in enumerate(chain) if layer.id in self.broken)
        end = next(broken, len(chain))
        while end and chain[end - 1].id in self.store.hidden:
            end -= 1
        return chain[end - 1] if end else None

    def _now(self, entry: Entry) -> Entry:
        """Return the copy of a snapshot that the store goes by."""
        return self.store.entries.get(entry.id, entry)

    def _culprit(self, tip: Entry, error: Exception) -> Entry:
        """Return the layer that an error is about: of those up to `tip`."""
        chain = self.store.chain(tip)
        named = getattr(error, "snapshot", None)
        for layer in chain:
            if layer.id == named or (named is None and layer.listed in self.bad):
                return layer
        return tip

    def _blame(self, entry: Entry, error: Exception) -> None:
        """Note a damaged file; unless the store has a copy of it, the snapshot is broken."""
        self._note(entry, error)
        self.store.mark_damaged(entry)
        if self.store.is_damaged(self._now(entry)):
            self.broken[entry.id] = entry.name

    def hidden(self, entries: Sequence[Entry]) -> list[Problem]:
        """Return a line for each snapshot that only others' damage hides."""
        found = []
        for entry in entries:
            if entry.id in self.good:
                continue
            if entry.name in self.damaged and entry.sharing == 1:
                continue
            place = self.store.storage / entry.name
            try:
                chain = self.store.chain(entry)
                name = next((self.broken[e.id] for e in chain if e.id in self.broken), entry.name)
                text = f"{place}: needs {name}, which is damaged"
            except MissingSnapshotError as error:
                text = str(error)
            found.append(Problem(entry.name, text, entry.meta.step))
        return found

    def marks(self) -> list[Problem]:
        """Return a line for each mark whose name alone tells whose it is."""
        whole = set(self.store.entries)
        halves = {one[: len(one) // 2] for one in whole}
        return [
            Problem(
                mark.name,
                f"{self.store.storage / mark.name}: offset 0: not the id of the snapshot "
                "that its name tells, which is believed",
            )
            for mark in self.store.catalog.marks.values()
            if whole.isdisjoint(mark.ids) and not halves.isdisjoint(mark.ids)
        ]

    def residual_of(self, owner: Entry) -> None:
        """Decode the residual of a good snapshot, if it has one."""
        residual = self.store.residuals.get(owner.id)
        if residual is None:
            return
        try:
            with OpenChain.of_store(
                self.store, self._now(owner), residual=residual, threads=self.threads, strict=True
            ) as opened:
                opened.check(self.progress)
        except (FormatError, MissingSnapshotError, OSError) as error:
            if is_shortage(error):
                raise
            if not _gone(residual, error):
                self._note(residual, error)

    def steps(self, tip: Entry | None) -> list[int]:
        """Return the steps of a line all of whose bytes are good."""
        return [
            step
            for step, generations in self.store.steps(tip).items()
            if generations[0].id in self.good
            and not self.bad.intersection(e.listed for e in self.store.chain(generations[0]))
        ]


def _content(entry: Entry) -> tuple[bool, bytes | None]:
    """Return what a file and its copies have in common."""
    residual = entry.kind == RESIDUAL
    return residual, entry.meta.parent if residual else entry.id


def _gone(entry: Entry, error: Exception) -> bool:
    """Whether a running writer has deleted a residual that is no longer needed."""
    return entry.kind == RESIDUAL and isinstance(error, FileNotFoundError)
