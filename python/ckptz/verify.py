"""Checking a store: every stored byte and every decoded chunk against its checksum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .errors import FormatError, MissingSnapshotError
from .file import RESIDUAL, FileReader
from .restore import OpenChain
from .storage import Listed, is_shortage
from .store import Entry, Store

__all__ = ["Problem", "VerifyReport", "verify_store"]

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    file: str
    what: str
    step: int | None = None
    """The step that it hides, where that is known."""


@dataclass(slots=True)
class VerifyReport:
    """What `verify` found."""

    steps: list[int] = field(default_factory=list)
    """Steps of the line, all of whose bytes are good."""
    snapshots: int = 0
    """Good snapshots, those off the line included."""
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify_store(store: Store, threads: int, progress: Progress | None = None) -> VerifyReport:
    """Read everything. Snapshots found damaged count as such in `store` from here on.

    Raises `OSError` for a lack of descriptors or memory, which says nothing of the files.
    """
    store.refresh()
    report = VerifyReport()
    for name, text in sorted(store.problems.items()):
        report.problems.append(Problem(name, text))
    bad = _check_payloads(store, report, progress)
    good: set[bytes] = set()
    for entry in sorted(store.entries.values(), key=lambda e: e.meta.sequence, reverse=True):
        if entry.id not in good:
            good |= _check_chain(store, entry, threads, report, progress)
    report.snapshots = len(good)
    report.steps = [
        step
        for step, generations in store.steps().items()
        if not bad.intersection(layer.listed for layer in store.chain(generations[0]))
    ]
    for parent, residual in store.residuals.items():
        owner = store.entries.get(parent)
        if owner is not None and parent in good:
            _check_residual(store, owner, residual, threads, report, progress)
    return report


def _check_payloads(store: Store, report: VerifyReport, progress: Progress | None) -> set[Listed]:
    """Read all payloads; return the files that do not match their checksum."""
    bad = set()
    files = {e.name: e for e in [*store.entries.values(), *store.residuals.values()]}
    for name, entry in sorted(files.items()):
        try:
            with store.storage.open(name) as source:
                FileReader(source).check_payload()
        except (FormatError, OSError) as error:
            if is_shortage(error):
                raise
            if _gone(entry, error):
                continue
            bad.add(entry.listed)
            report.problems.append(Problem(name, str(error), entry.meta.step))
        if progress is not None:
            progress(entry.payload_bytes)
    return bad


def _gone(entry: Entry, error: Exception) -> bool:
    """Whether a running writer has deleted a residual that is no longer needed."""
    return entry.kind == RESIDUAL and isinstance(error, FileNotFoundError)


def _check_chain(
    store: Store, entry: Entry, threads: int, report: VerifyReport, progress: Progress | None
) -> set[bytes]:
    """Decode a chain, or as much of it as is good; return the ids of the good snapshots."""
    try:
        chain = store.chain(entry)
    except MissingSnapshotError as error:
        store.mark_damaged(entry)
        report.problems.append(Problem(entry.name, str(error), entry.meta.step))
        return set()
    for tip in reversed(chain):
        try:
            with OpenChain.of_store(store, tip, threads=threads) as opened:
                opened.check(progress)
        except (FormatError, MissingSnapshotError, OSError) as error:
            if is_shortage(error):
                raise
            store.mark_damaged(tip)
            report.problems.append(Problem(tip.name, str(error), tip.meta.step))
            continue
        return {layer.id for layer in chain[: chain.index(tip) + 1]}
    return set()


def _check_residual(
    store: Store,
    owner: Entry,
    residual: Entry,
    threads: int,
    report: VerifyReport,
    progress: Progress | None,
) -> None:
    try:
        with OpenChain.of_store(
            store, owner, residual=residual, threads=threads, strict=True
        ) as opened:
            opened.check(progress)
    except (FormatError, MissingSnapshotError, OSError) as error:
        if is_shortage(error):
            raise
        if not _gone(residual, error):
            report.problems.append(Problem(residual.name, str(error)))
