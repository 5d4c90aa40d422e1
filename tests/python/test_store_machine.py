"""A store against a model of it: saves, rewinds, reopening, lost and damaged files."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ckptz
import evolving
import pytest
import stores
from ckptz.file import FileReader
from ckptz.storage import Reader
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

SHAPES = [(), (16,), (17, 3), (300,)]
GOOD, PAYLOAD, INCOMPLETE = "good", "payload", "incomplete"


@dataclass
class Snap:
    """What is known of a saved snapshot."""

    step: int
    sequence: int
    parent: bytes | None
    base: list[bytes]
    state: list[bytes]
    line: list[bytes]


class StoreMachine(RuleBasedStateMachine):
    """`files` says of each file of the directory whose it is and how it fares."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp()) / "store"
        self.path.mkdir()
        self.snaps: dict[bytes, Snap] = {}
        self.files: dict[str, tuple[bytes, str]] = {}
        self.residuals: dict[str, tuple[bytes, str]] = {}
        self.tip: bytes | None = None
        self.tree = evolving.beginning(5, SHAPES)
        self.foreign = 0
        # Ids, and so names and their order, repeat.
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("time.time_ns", stores.Clock())

    def teardown(self) -> None:
        self.patch.undo()
        self.manager.close()
        shutil.rmtree(self.path.parent)

    @initialize(policy=evolving.policies(), full_every=st.integers(0, 5))
    def begin(self, policy: Any, full_every: int) -> None:
        self.policy, self.full_every = policy, full_every
        self.open()
        self.reader = ckptz.CheckpointManager(self.path, readonly=True, threads=1)

    def open(self) -> None:
        self.manager = ckptz.CheckpointManager(
            self.path, self.policy, full_every=self.full_every, threads=1
        )

    # --- The model's view ---

    def complete(self, one: bytes | None) -> bool:
        """Whether a snapshot and its ancestors have a file each that is complete."""
        while one is not None:
            if not any(i == one and how != INCOMPLETE for i, how in self.files.values()):
                return False
            one = self.snaps[one].parent
        return True

    def orphan(self, one: bytes) -> bool:
        """Whether a snapshot is there, and one of its ancestors is not."""
        there = any(i == one and how != INCOMPLETE for i, how in self.files.values())
        return there and not self.complete(one)

    def good(self, one: bytes | None) -> bool:
        while one is not None:
            if (one, GOOD) not in self.files.values():
                return False
            one = self.snaps[one].parent
        return True

    @property
    def line(self) -> list[bytes]:
        """Line of the writer."""
        return self.committed_line() if self.tip is None else self.snaps[self.tip].line

    def committed_line(self) -> list[bytes]:
        """Line of what a fresh reader takes as the newest."""
        there = {one for one, how in self.files.values() if how != INCOMPLETE}
        newest = max(there, key=lambda one: self.snaps[one].sequence, default=None)
        return [] if newest is None else self.snaps[newest].line

    def content(self, one: bytes) -> list[bytes]:
        exact = (one, GOOD) in self.residuals.values()
        return self.snaps[one].state if exact else self.snaps[one].base

    # --- What users do ---

    @rule(changes=evolving.changes(), ahead=st.integers(1, 3), overwrite=st.booleans())
    def save(self, changes: list[evolving.Change], ahead: int, overwrite: bool) -> None:
        for change in changes:
            self.tree = evolving.apply(self.tree, change, SHAPES)
        good = [one for one in self.line if self.good(one)]
        steps = [self.snaps[one].step for one in self.line if self.complete(one)]
        step = max(steps, default=0) + ahead
        if overwrite and steps:
            step = max(0, max(steps) + 2 - 2 * ahead)
        kept = [one for one in good if self.snaps[one].step <= step]
        self.manager.save(step, self.tree, overwrite=overwrite)
        base = self.manager._writer._base
        assert base is not None
        entry = base.entry
        left = {n for first, last in entry.meta.rewound for n in range(first, last + 1)}
        line = [one for one in self.line if self.snaps[one].sequence not in left] + [entry.id]
        assert set(kept) <= set(line)
        assert all(self.snaps[one].step <= step for one in line if self.complete(one))
        assert self.good(entry.meta.parent)
        tree, held = stores.arrays_of(self.tree), stores.base_of(self.manager)
        made = Snap(step, entry.meta.sequence, entry.meta.parent, held, tree, line)
        there = {one for one, how in self.files.values() if how != INCOMPLETE}
        assert made.sequence > max((self.snaps[one].sequence for one in there), default=-1)
        self.snaps[entry.id], self.tip = made, None
        self.files[entry.name] = entry.id, GOOD
        self.look_for_residuals(entry.id)

    def look_for_residuals(self, newest: bytes) -> None:
        """A save leaves no residuals that can be read but its own, and of what lacks a file."""
        there = {path.name for path in self.path.glob("*.residual.ckptz")}
        self.residuals = {n: v for n, v in self.residuals.items() if n in there}
        assert all(how == INCOMPLETE or self.orphan(one) for one, how in self.residuals.values())
        known = len(self.residuals)
        for name in there - set(self.residuals):
            self.residuals[name] = newest, GOOD
        assert len(there) <= 1 + known

    @rule(number=st.integers(0, 20))
    def rewind(self, number: int) -> None:
        self.manager.reload()
        good = [one for one in self.line if self.good(one)]
        if not good:
            return
        one = good[number % len(good)]
        step = self.snaps[one].step
        best = [other for other in self.line if self.snaps[other].step == step and self.good(other)]
        found = stores.arrays_of(self.manager.restore(step, rewind=True, residual=False))
        assert found == self.snaps[best[-1]].base
        self.tip = best[-1]

    @rule()
    def reopen(self) -> None:
        self.manager.close()
        self.open()
        self.tip = None

    # --- What befalls the directory ---

    def pick(self, number: int) -> str | None:
        names = sorted([*self.files, *self.residuals])
        return names[number % len(names)] if names else None

    @rule(number=st.integers(0, 50))
    def delete(self, number: int) -> None:
        name = self.pick(number)
        if name is not None:
            (self.path / name).unlink()
            self.residuals.pop(name, None)
            one = self.files.pop(name, (b"", ""))[0]
            if one not in {one for one, _ in self.files.values()}:
                # Gone for good; its sequence number may be used again.
                for line in [snap.line for snap in self.snaps.values()]:
                    if one in line:
                        line.remove(one)

    @rule(
        number=st.integers(0, 50), how=st.sampled_from(["flip", "cut", "empty"]), at=st.floats(0, 1)
    )
    def damage(self, number: int, how: str, at: float) -> None:
        name = self.pick(number)
        files = self.files if name in self.files else self.residuals
        if name is None or files[name][1] != GOOD:
            return
        path = self.path / name
        data = bytearray(path.read_bytes())
        where = min(int(at * len(data)), len(data) - 1)
        with Reader(path) as source:
            payload = range(16, 16 + FileReader(source).payload_bytes)
        if how == "flip":
            data[where] ^= 1 << number % 8
        else:
            del data[where if how == "cut" else 0 :]
        path.unlink()
        path.write_bytes(data)
        in_payload = how == "flip" and where in payload
        files[name] = files[name][0], PAYLOAD if in_payload else INCOMPLETE

    @rule(number=st.integers(0, 50), late=st.booleans())
    def copy(self, number: int, late: bool) -> None:
        name = self.pick(number)
        if name in self.files:
            self.foreign += 1
            other = f"{'z' if late else 'a'} copy {self.foreign}.ckptz"
            shutil.copyfile(self.path / name, self.path / other)
            self.files[other] = self.files[name]

    @rule(kind=st.sampled_from(["text", "junk", "folder", "link", "draft"]))
    def foreign_file(self, kind: str) -> None:
        self.foreign += 1
        name = self.path / f"{self.foreign:010d}-foreign.ckptz"
        if kind == "text":
            (self.path / f"notes {self.foreign}.txt").write_text("hello")
        elif kind == "junk":
            name.write_bytes(b"\x89CKPTZ\r\n" + b"junk" * self.foreign)
        elif kind == "folder":
            name.mkdir()
        elif kind == "link":
            name.symlink_to("/etc/passwd")
        else:
            (self.path / f".tmp-{self.foreign}").write_bytes(b"half")

    # --- What must hold ---

    @invariant()
    def a_fresh_reader_sees_what_it_should(self) -> None:
        if self.snaps:
            self.check(ckptz.CheckpointManager(self.path, readonly=True, threads=1))

    @precondition(lambda self: self.snaps)
    @rule()
    def an_old_reader_reloads(self) -> None:
        self.reader.reload()
        known = set(self.reader.all_steps())
        line = self.committed_line()
        assert known <= {self.snaps[one].step for one in line if self.complete(one)}
        for step in {self.snaps[one].step for one in line if self.good(one)}:
            assert step in known
            self.check_one(self.reader, step, line)

    def check(self, reader: ckptz.CheckpointManager) -> None:
        line = self.committed_line()
        steps = {self.snaps[one].step for one in line if self.complete(one)}
        assert reader.all_steps() == sorted(steps)
        self.check_one(reader, None, line)
        for step in sorted(steps):
            self.check_one(reader, step, line)
        report = reader.verify()
        assert report.steps == sorted({self.snaps[one].step for one in line if self.good(one)})
        assert all(str(problem.file) for problem in report.problems)

    def check_one(
        self, reader: ckptz.CheckpointManager, step: int | None, line: list[bytes]
    ) -> None:
        """The first good snapshot is restored; a damaged one before it only if it is right."""
        able = []
        for one in reversed(line):
            if step in (None, self.snaps[one].step) and self.complete(one):
                able.append(one)
                if self.good(one):
                    break
        found: object = None
        failed = ""
        try:
            found = reader.restore(step)
        except (ckptz.FormatError, ckptz.MissingSnapshotError) as error:
            failed = str(error)
        if failed:
            assert not any(self.good(one) for one in able)
            assert str(self.path) in failed
            return
        allowed = [self.content(one) for one in able] + [self.snaps[one].base for one in able]
        assert stores.arrays_of(found) in allowed
        if len(able) == 1 and self.good(able[0]):
            assert stores.arrays_of(found) == self.content(able[0])


StoreMachine.TestCase.settings = settings(stores.examples(20), stateful_step_count=20)
TestStore = pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")(StoreMachine.TestCase)
