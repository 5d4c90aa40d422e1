"""Which steps stay, and which files can go: functions of a store's index alone.

A kept step needs the snapshots of its chain, and these the files that hold them. What is needed
but not kept is hidden: a layer of others and no step any more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from .file import COMMIT, RESIDUAL, Entry
from .marks import HIDDEN, PIN
from .snapshot import LARGEST_SEQUENCE, Extra
from .storage import Listed
from .store import Store

__all__ = ["Plan", "Retention", "plan_files"]


class Retention(msgspec.Struct, frozen=True):
    """How many of the steps that can be restored stay. The newest always does.

    So do pinned ones, and the newest one without entries that are not finite.
    """

    max_to_keep: int | None = None
    """So many of the newest (with `best_fn`: the newest and the best); None: all."""
    keep_period: int | None = None
    """Steps that are multiples of this stay as well."""
    keep_every_seconds: float | None = None
    """So does a step whenever so much time has passed since the last one kept for this."""
    best_fn: Callable[[Mapping[str, float]], float] | None = None
    """Of a step's metrics; more is better. Steps without metrics are worse than all with."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for what cannot be."""
        for name in ("max_to_keep", "keep_period"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name}={value!r} is not an integer from 1 up")
        seconds = self.keep_every_seconds
        if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
            raise ValueError(f"keep_every_seconds={seconds!r} is not a number above 0")
        if self.best_fn is not None and (self.max_to_keep or 0) < 2:
            raise ValueError("best_fn needs max_to_keep of at least 2: one is the newest step")

    @property
    def drops(self) -> bool:
        """Whether there is anything that does not stay."""
        return self.max_to_keep is not None

    def score(self, metrics: Mapping[str, float] | None) -> float:
        """Return how good a step with these metrics is."""
        if not metrics or self.best_fn is None:
            return -math.inf
        found = float(self.best_fn(metrics))
        return -math.inf if math.isnan(found) else found

    def kept(self, steps: Sequence[Entry], pinned: Collection[bytes] = ()) -> set[bytes]:
        """Return the ids of those that stay; `steps`: one entry each, in numeric order."""
        if self.max_to_keep is None or not steps:
            return {entry.id for entry in steps}
        recent = list(reversed(steps))
        if self.best_fn is not None:
            # Sorting is stable: of equally good ones the newer stays.
            recent[1:] = sorted(recent[1:], key=lambda e: -self.score(Extra.of(e.meta).measured()))
        kept = {entry.id for entry in recent[: self.max_to_keep]}
        kept |= {entry.id for entry in steps if entry.id in pinned}
        finite = (entry.id for entry in reversed(steps) if not entry.meta.marks & 1)
        kept.update([one for one in [next(finite, None)] if one is not None])
        if self.keep_period is not None:
            kept |= {entry.id for entry in steps if entry.meta.step % self.keep_period == 0}
        if self.keep_every_seconds is not None:
            kept |= set(_spaced(steps, self.keep_every_seconds))
        return kept


def _spaced(steps: Iterable[Entry], seconds: float) -> Iterable[bytes]:
    """Yield the first and whatever is far enough from the last that was yielded."""
    last: int | None = None
    for entry in steps:
        # A clock that was put back does not stop this.
        if last is None or abs(entry.meta.created - last) >= 1000 * seconds:
            last = entry.meta.created
            yield entry.id


class Plan(msgspec.Struct, frozen=True):
    """What is to be done so that only what is kept stays."""

    kept: list[int]
    """Steps that stay."""
    dropped: list[int]
    """Steps that go."""
    hide: list[Entry]
    """Snapshots that are no steps any more, in files that stay, to be marked first."""
    remove: list[Listed]
    """Files, in the order in which they are to be deleted."""
    idle: list[Listed]
    """Marks that say nothing any more once that is durable."""

    @property
    def does_something(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.hide or self.gone)

    @property
    def gone(self) -> list[Listed]:
        """All files that go."""
        return [*self.remove, *self.idle]


def plan_files(store: Store, kept: Collection[bytes], spared: Collection[bytes] = ()) -> Plan:
    """Plan what to hide and delete.

    kept: ids of the steps that stay. spared: ids of snapshots that are left as they are, steps or
    not, with all that they need. Pinned ones are, and what lacks a file, or one that can be read.
    """
    steps = store.steps()
    stay = {n for n, found in steps.items() if any(entry.id in kept for entry in found)}
    needed = store.closure({*kept, *spared, *store.pinned, *_in_doubt(store)})
    holders = _holders(store, needed)
    carrier = _carrier(store, needed)
    if carrier is not None:
        holders.add(carrier.listed)
    left = {entry.id for entry in store.catalog.entries() if entry.listed in holders}
    hide = [
        entry
        for entry in store.restorable()
        if entry.meta.step not in stay and entry.id in left and entry.id not in spared
    ]
    hide = [entry for entry in hide if entry.id not in store.pinned]
    # Off the line, in the file of others: no step once the newest is gone, which says that now.
    extra = left - needed - store.hidden - {entry.id for entry in hide}
    hide += [entry for entry in store.entries.values() if entry.id in extra]
    snapshots, others = _removable(store, holders)
    return Plan(
        kept=sorted(stay),
        dropped=sorted(set(steps) - stay - {store.entries[one].meta.step for one in spared}),
        hide=hide,
        remove=[*others, *snapshots],
        idle=_idle_marks(store, holders, hide),
    )


def _in_doubt(store: Store) -> set[bytes]:
    """Return snapshots that cannot be restored until some file is good, or there, again."""
    entries = store.entries.values()
    if not store.catalog.unreadable and not any(map(store.is_damaged, entries)):
        return set(store.orphans)
    return {entry.id for entry in entries if not store.can_restore(entry)}


def _holders(store: Store, needed: Collection[bytes]) -> set[Listed]:
    """Return the files to keep: of copies of a snapshot, that in the file with the most others.

    A merged file lacks only what no step needs that was one when it was made: dropped steps are
    marked before that and never come back.
    """
    held = Counter(entry.listed for entry in store.catalog.entries() if entry.id in needed)
    best: dict[bytes, Entry] = {}

    def worth(entry: Entry) -> tuple[bool, bool, int, int, str]:
        hides = entry.hidden and entry.id not in store.hidden
        return store.is_damaged(entry), hides, -held[entry.listed], entry.size, entry.name

    for entry in store.catalog.entries():
        if entry.kind == RESIDUAL or entry.id not in needed:
            continue
        known = best.get(entry.id)
        if known is None or worth(entry) < worth(known):
            best[entry.id] = entry
    return {entry.listed for entry in best.values()}


def _carrier(store: Store, needed: Collection[bytes]) -> Entry | None:
    """Return the newest snapshot if it must stay though it is no step.

    It says what the line is; and where no lock keeps other writers out, its commit is what one that
    knows of nothing newer collides with.
    """
    newest = store.newest()
    if newest is None or newest.id in needed:
        return None
    ranges = newest.meta.rewound
    sequences = [store.entries[one].meta.sequence for one in needed]
    away = any(first <= n <= last for n in sequences for first, last in ranges)
    return newest if away or store.storage.shared else None


def _removable(store: Store, holders: Collection[Listed]) -> tuple[list[Listed], list[Listed]]:
    """Return files of snapshots, newest first, and files of residuals and lost parts that may go.

    Newest first, so that whatever is left at a crash has its parent. The last of all is the
    store's newest if it is no step, and only says what the line is.
    """
    left = {entry.id for entry in store.catalog.entries() if entry.listed in holders}
    newest = store.newest()
    exact = {*store.pinned, *(e.id for e in store.pinned_steps().values()), *store.orphans}
    exact |= {newest.id} if newest is not None else set()
    # Another writer may have begun with the next snapshot.
    last = store.last_sequence if store.storage.shared else LARGEST_SEQUENCE
    snapshots: list[tuple[int, Entry]] = []
    others = [part.listed for part in store.catalog.joined.dead]
    for listed, found in store.catalog.by_file().items():
        if found.kind == RESIDUAL:
            owner = found.meta.parent or b""
            idle = owner not in exact & left or store.residuals[owner].listed != listed
            if idle and found.meta.sequence <= last:
                others.append(listed)
        elif found.kind != COMMIT and listed not in holders and not _is_foreign(found, left):
            carries = newest is not None and newest.listed == listed and newest.id in store.hidden
            snapshots.append((-1 if carries else found.meta.sequence, found))
    snapshots.sort(key=lambda one: (-one[0], one[1].listed))
    return [listed for _, entry in snapshots for listed in entry.files], others


def _is_foreign(found: Entry, left: Collection[bytes]) -> bool:
    """Whether a file was saved without a store, and is none of its snapshots by now."""
    return found.meta.full and found.meta.policy is None and found.id not in left


def _idle_marks(store: Store, holders: Collection[Listed], hide: Collection[Entry]) -> list[Listed]:
    """Return marks that say nothing any more once the other files are gone."""
    if store.catalog.unreadable:
        return []
    kept = [entry for entry in store.catalog.entries() if entry.listed in holders]
    shown = {entry.id for entry in kept if not entry.hidden} | {entry.id for entry in hide}
    of_kind = {PIN: {entry.id for entry in kept}, HIDDEN: shown}
    for ids in of_kind.values():
        ids.update(store.orphans.values())  # whose files may come back
        ids |= {one[: len(one) // 2] for one in ids}  # all that some marks tell
    marks = store.catalog.marks.items()
    return [listed for listed, mark in marks if of_kind[mark.kind].isdisjoint(mark.ids)]
