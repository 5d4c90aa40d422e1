"""Damage: every bit of a store flipped, every file cut to every length.

    python tests/faults/flips.py [--seconds N] [--seed N]

In random order, until all has been done or the time is up. The store has two full snapshots,
deltas, a merged file with a dropped step, marks, residuals, and a line that was left. After each
damage every step gives the right bytes or a typed error, the newest one perhaps an older state and
a warning; a step that does not need the damaged file gives the right bytes; `verify` notices.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "python")]

import ckptz  # noqa: E402
import stores  # noqa: E402
from tally import Tally  # noqa: E402

ERRORS = (ckptz.FormatError, ckptz.MissingSnapshotError)
# A restore that takes longer, in seconds, hangs.
LONGEST = 60
REWOUND, PINNED = 90, 6


class Damage(NamedTuple):
    """One bit that is flipped, or a length that a file is cut to."""

    name: str
    kind: str
    at: int

    def apply(self, good: bytes) -> bytes:
        if self.kind == "cut":
            return good[: self.at]
        changed = bytearray(good)
        changed[self.at // 8] ^= 1 << self.at % 8
        return bytes(changed)


class Damaged:
    """A store, and what each of its steps may give."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.right: dict[int, set[str]] = {}
        self.prepare()
        self.good = stores.files(path)
        self.newest = stores.digest(stores.fresh(path))
        self.steps = set(ckptz.CheckpointManager(path, readonly=True).all_steps())
        self.without = {name: self.restorable_without(name) for name in self.good}

    def prepare(self) -> None:
        trees = list(stores.training(10, size=32))
        with stores.clock(), ckptz.CheckpointManager(self.path, full_every=5) as manager:
            for step, tree in enumerate(trees[:8]):
                if step == 4:
                    self.save(manager, REWOUND, trees[9])
                    manager.restore(3, rewind=True)
                self.save(manager, step, tree)
                if step == PINNED:
                    manager.pin()
            manager.delete(2)
            manager.merge([1, 3])
            manager.delete(5)

    def save(self, manager: ckptz.CheckpointManager, step: int, tree: stores.State) -> None:
        manager.save(step, tree)
        base = stores.digest(manager.restore(step, residual=False))
        self.right[step] = {stores.digest(tree), base}

    def restorable_without(self, name: str) -> set[int]:
        """Steps that do not need a file."""
        path = self.path / name
        if not name.endswith(".ckptz"):
            return set(ckptz.CheckpointManager(self.path, readonly=True).all_steps())
        path.unlink()
        steps = set(ckptz.CheckpointManager(self.path, readonly=True).all_steps())
        path.write_bytes(self.good[name])
        return steps

    def all(self) -> list[Damage]:
        """Every damage there is."""
        bits = [
            Damage(name, "bit", at) for name, d in self.good.items() for at in range(8 * len(d))
        ]
        cuts = [Damage(name, "cut", at) for name, d in self.good.items() for at in range(len(d))]
        return bits + cuts

    def check(self, damage: Damage) -> str:
        """Do damage; return what is wrong with what comes of it, or nothing."""
        path = self.path / damage.name
        path.write_bytes(damage.apply(self.good[damage.name]))
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                signal.alarm(LONGEST)
                return self.look(damage.name, caught)
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
        finally:
            signal.alarm(0)
            path.write_bytes(self.good[damage.name])

    def look(self, name: str, caught: list[Any]) -> str:
        try:
            manager = ckptz.CheckpointManager(self.path, readonly=True, threads=1)
        except ckptz.UnknownVersionError:
            return ""  # what a newer version has written may say anything of the others
        found = attempt(manager.restore)
        if found is None:
            return "nothing can be restored" if self.without[name] else ""
        if found not in set.union(*self.right.values()):
            return "wrong bytes of the newest"
        if found != self.newest and not caught:
            return "not the newest, and no warning"
        for step, right in self.right.items():
            found = attempt(lambda: manager.restore(step))  # noqa: B023
            if found is not None and found not in right:
                return f"wrong bytes of step {step}"
            if found is not None and step not in self.steps:
                return f"step {step}, which was dropped, is there again"
            if found is None and step in self.without[name]:
                return f"step {step} does not need this file, and cannot be restored"
        if PINNED in manager.all_steps() and manager.pinned_steps() != [PINNED]:
            return "the pin is lost"
        return "verify finds nothing" if manager.verify().ok else ""


def attempt(restore: Callable[[], Any]) -> str | None:
    """Digest of what a restore gives, None for a typed error."""
    try:
        return stores.digest(restore())
    except ERRORS:
        return None


def main() -> None:
    tally = Tally("flips", __doc__, 60)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        store = Damaged(Path(folder) / "store")
        every = store.all()
        random.Random(tally.seed).shuffle(every)
        for damage in every:
            if not tally.more():
                break
            kind = damage.name.split(".", 1)[1]
            what = f"{damage.kind} {damage.at} of {damage.name}"
            tally.note(f"{damage.kind} of a {kind}", what, store.check(damage))
        shutil.rmtree(store.path)
    tally.finish("damages", f"; {len(every)} different ones")


if __name__ == "__main__":
    main()
