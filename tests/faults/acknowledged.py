"""What a process that changes a store has said, and what its store must hold afterwards."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "python")]

import ckptz  # noqa: E402
import stores  # noqa: E402

TREES = list(stores.training(64))


def tree(step: int) -> stores.State:
    return TREES[step % len(TREES)]


def digest(arrays: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(arrays)).hexdigest()


@dataclass
class Model:
    """What has been acknowledged."""

    must: set[int] = field(default_factory=set)
    """Steps that are there."""
    may: set[int] = field(default_factory=set)
    """Steps that are there, or may be."""
    bases: dict[int, str] = field(default_factory=dict)
    exact: dict[int, str] = field(default_factory=dict)
    pinned: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)
    """Steps whose pin is being changed, or which are being left behind."""
    left: set[int] = field(default_factory=set)
    """Steps that the save under way leaves behind."""
    doing: str = "nothing"

    def hear(self, said: dict[str, Any]) -> None:
        """Take note of what the process says."""
        if "begin" in said:
            self.doing = said["begin"]
            if self.doing == "save":
                self.may.add(said["step"])
                self.exact[said["step"]] = said["exact"]
                self.leave_behind(said["back"])
            elif self.doing == "delete":
                self.must.discard(said["step"])
            elif self.doing in ("pin", "unpin"):
                self.unsure = {said["step"]}
            self.rotate(said.get("keep"), more=self.doing == "save")
        elif "done" in said:
            step = said["step"]
            if self.doing == "save":
                self.must.add(step)
                self.bases[step] = said["base"]
                self.may -= self.left
                self.pinned -= self.left
            elif self.doing == "delete":
                self.may.discard(step)
            elif self.doing == "pin":
                self.pinned.add(step)
                # If it was there only by chance so far, as the rules may drop it, it stays now.
                self.must.add(step)
            elif self.doing == "unpin":
                self.pinned.discard(step)
            self.doing, self.unsure = "nothing", set()

    def leave_behind(self, back: int | None) -> None:
        """Let go of what comes after a step, if a save goes on from there."""
        self.left = set() if back is None else {step for step in self.must if step > back}
        self.must -= self.left
        self.unsure = self.left & self.pinned

    def rotate(self, keep: int | None, more: bool) -> None:
        """Let go of what the rules may drop. more: one step is on its way."""
        if keep is not None:
            newest = sorted(self.must)[-(keep - more) :] if keep > more else []
            self.must &= set(newest) | (self.pinned - self.unsure)

    def check(self, path: Path) -> None:
        """Check a store that has been mounted again, and take it as it is."""
        if not path.exists():
            assert not self.must, "the store is lost"
            return
        reader = ckptz.CheckpointManager(path, readonly=True, threads=1)
        steps = set(reader.all_steps())
        assert self.must <= steps, f"lost: {sorted(self.must - steps)}"
        assert steps <= self.may, f"back again: {sorted(steps - self.may)}"
        for step in steps:
            base = digest(stores.arrays_of(reader.restore(step, residual=False)))
            assert self.bases.setdefault(step, base) == base, f"step {step} is another one"
        if steps:
            newest = digest(stores.arrays_of(reader.restore()))
            assert newest == self.exact[max(steps)], "the newest is not what was saved"
        pinned = set(reader.pinned_steps())
        assert pinned - self.unsure == self.pinned - self.unsure, "pins"
        assert not reader.verify().problems, reader.verify().problems
        self.must, self.may, self.pinned = set(steps), set(steps), pinned
        self.doing, self.unsure = "nothing", set()

    def go_on(self, path: Path) -> None:
        """Save into the store, and check that it is right."""
        step = max(self.may, default=-1) + 1
        with ckptz.CheckpointManager(path, full_every=5, threads=1) as manager:
            manager.save(step, tree(step))
            self.bases[step] = digest(stores.base_of(manager))
        self.exact[step] = digest(stores.arrays_of(tree(step)))
        self.must.add(step)
        self.may.add(step)
        left = [p.name for p in path.glob(".tmp-*")]
        assert not left, f"left over: {left}"
        assert digest(stores.arrays_of(stores.fresh(path))) == self.exact[step], (
            "not what was saved"
        )
        base = digest(stores.arrays_of(stores.fresh(path, residual=False)))
        assert base == self.bases[step], "the base is another one"
