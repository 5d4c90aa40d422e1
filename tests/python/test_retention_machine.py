"""A store that drops, pins, deletes, collects and merges, against a dict of what must be there."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import ckptz
import evolving
import pytest
import stores
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from test_merge import check_plain

SHAPES = [(), (16,), (17, 3), (300,)]


@dataclass
class Snap:
    """What is known of a step."""

    base: list[bytes]
    state: list[bytes]
    exact: bool = False
    """Whether it has been pinned while it was the newest."""
    pinned: bool = False


class Machine(RuleBasedStateMachine):
    """`steps` is the model: the steps that are there."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp()) / "store"
        self.steps: dict[int, Snap] = {}
        self.tree = evolving.beginning(5, SHAPES)
        self.newest = -1

    def teardown(self) -> None:
        self.manager.close()
        shutil.rmtree(self.path.parent)

    @initialize(
        policy=evolving.policies(),
        full_every=st.integers(0, 5),
        keep=st.none() | st.integers(1, 4),
        period=st.none() | st.integers(2, 5),
        most=st.none() | st.integers(3, 5),
        room=st.none() | st.integers(2_000, 20_000),
    )
    def begin(
        self,
        policy: ckptz.Policy,
        full_every: int,
        keep: int | None,
        period: int | None,
        most: int | None,
        room: int | None,
    ) -> None:
        self.policy, self.full_every = policy, full_every
        self.keep, self.period, self.most, self.room = keep, period, most, room
        self.open()

    def open(self) -> None:
        self.manager = ckptz.CheckpointManager(
            self.path,
            self.policy,
            full_every=self.full_every,
            max_to_keep=self.keep,
            keep_period=self.period,
            max_files=self.most,
            max_restore_bytes=self.room,
            threads=1,
        )

    def apply_rules(self) -> None:
        if self.keep is None:
            return
        newest = sorted(self.steps)[-self.keep :]
        for step in list(self.steps):
            of_period = self.period is not None and step % self.period == 0
            if not (step in newest or of_period or self.steps[step].pinned):
                del self.steps[step]

    @rule(changes=evolving.changes(), ahead=st.integers(1, 3), back=st.none() | st.integers(0, 9))
    def save(self, changes: list[evolving.Change], ahead: int, back: int | None) -> None:
        for change in changes:
            if change.operation != "awkward":  # what is not finite is another test's
                self.tree = evolving.apply(self.tree, change, SHAPES)
        if back is not None and self.steps:
            known = sorted(self.steps)
            step = known[back % len(known)]
            found = self.manager.restore(step, rewind=True, residual=False)
            assert stores.arrays_of(found) == self.steps[step].base
            for later in [one for one in known if one > step]:
                del self.steps[later]
        before = max(self.steps, default=-1)
        step = before + ahead
        self.manager.save(step, self.tree)
        base = stores.base_of(self.manager)
        kept = {n: snap for n, snap in self.steps.items() if n == before}
        self.steps[step] = Snap(base, stores.arrays_of(self.tree))
        self.newest = step
        self.apply_rules()
        if not self.manager.stats(step).finite:
            self.steps |= kept  # the last that is
            self.keep = None  # .. and the rules keep more from then on
            self.manager.close()
            self.open()
        # A merge that the other bound forbids is made up for by the next save.
        if self.most is not None and self.room is None:
            assert all(self.manager.stats(s).restore_files <= self.most for s in self.steps)

    def pick(self, number: int) -> int | None:
        known = sorted(self.steps)
        return known[number % len(known)] if known else None

    @rule(number=st.integers(0, 9))
    def delete(self, number: int) -> None:
        step = self.pick(number)
        if step is None:
            return
        if self.steps[step].pinned:
            with pytest.raises(ValueError, match="is pinned"):
                self.manager.delete(step)
            return
        self.manager.delete(step)
        del self.steps[step]
        if step == self.newest:
            self.newest = -1

    @rule(number=st.integers(0, 9), newest=st.booleans())
    def pin(self, number: int, newest: bool) -> None:
        step = max(self.steps, default=None) if newest else self.pick(number)
        if step is not None:
            self.manager.pin(step)
            self.steps[step].pinned = True
            self.steps[step].exact |= step == self.newest

    @rule(number=st.integers(0, 9))
    def unpin(self, number: int) -> None:
        step = self.pick(number)
        if step is not None:
            self.manager.unpin(step)
            self.steps[step].pinned = self.steps[step].exact = False

    @rule(dry_run=st.booleans())
    def gc(self, dry_run: bool) -> None:
        if not self.path.exists():
            return
        found = self.manager.gc(dry_run=dry_run)
        if dry_run:
            return
        self.apply_rules()
        assert found.kept == sorted(self.steps)
        # Nothing is left that no step needs, but for what shares a file with what is.
        store = self.manager._store
        needed = store.closure([e.id for e in store.restorable()] + list(store.pinned))
        for listed, entries in store.catalog.files.items():
            assert any(e.id in needed or e.meta.parent in needed for e in entries), listed.name
        assert self.manager.gc().files == []

    @rule(everything=st.booleans(), numbers=st.lists(st.integers(0, 9), min_size=1, max_size=4))
    def merge(self, everything: bool, numbers: list[int]) -> None:
        steps = [step for n in numbers if (step := self.pick(n)) is not None]
        if steps:
            self.manager.merge(None if everything else steps)

    @rule()
    def reopen(self) -> None:
        self.manager.close()
        self.open()

    @invariant()
    def a_fresh_reader_sees_what_it_should(self) -> None:
        if not self.path.exists():
            return
        reader = ckptz.CheckpointManager(self.path, readonly=True, threads=1)
        assert reader.all_steps() == self.manager.all_steps() == sorted(self.steps)
        assert reader.pinned_steps() == [s for s in sorted(self.steps) if self.steps[s].pinned]
        for step, snap in self.steps.items():
            assert stores.arrays_of(reader.restore(step, residual=False)) == snap.base
            if snap.exact or step == self.newest:
                assert stores.arrays_of(reader.restore(step)) == snap.state
        for found in map(reader.stats, self.steps):
            alone = found.kind == "full" and found.restore_files == 1 + (found.residual_bytes > 0)
            assert self.room is None or found.restore_bytes <= self.room or alone
        assert reader.verify().problems == []
        if self.steps:
            check_plain(reader)


Machine.TestCase.settings = settings(stores.examples(12), stateful_step_count=15)
TestRetention = pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")(Machine.TestCase)
