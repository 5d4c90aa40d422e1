"""Both backends against a model: writers that take turns, faults, copies from one to the other."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import ckptz
import evolving
import fake_objects
import pytest
import stores
from ckptz import CheckpointManager
from ckptz.storage import open_storage
from ckptz.transfer import copy_store
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

SHAPES = [(), (16,), (40, 3)]
Contents = list[bytes]


class StorageMachine(RuleBasedStateMachine):
    """`line` is what a reader must find: step -> the state as saved, and as reconstructed."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.cloud = fake_objects.install(self.patch, deadline="0.01")
        self.folder = Path(tempfile.mkdtemp())
        self.numbers = itertools.count()
        self.line: dict[int, tuple[Contents, Contents]] = {}
        self.tree = evolving.beginning(5, SHAPES)

    def teardown(self) -> None:
        for writer in self.writers:
            writer.close()
        self.patch.undo()
        shutil.rmtree(self.folder)

    def new_place(self, shared: bool) -> str:
        number = next(self.numbers)
        return f"s3://bucket/{number}" if shared else str(self.folder / str(number))

    @initialize(policy=evolving.policies(), full_every=st.integers(0, 4), shared=st.booleans())
    def begin(self, policy: Any, full_every: int, shared: bool) -> None:
        self.options: dict[str, Any] = {"policy": policy, "full_every": full_every, "threads": 1}
        self.place = self.new_place(shared)
        self.open()

    def open(self) -> None:
        self.shared = self.place.startswith("s3:")
        # In a directory the first one that saves keeps the others out.
        self.writers = [CheckpointManager(self.place, **self.options) for _ in range(2)]

    def save(self, writer: CheckpointManager, step: int, line: dict[int, Any]) -> None:
        """Save: the line is then the one given, with this step."""
        tree = dict(self.tree)
        state = stores.arrays_of(tree)
        try:
            writer.save(step, tree)
        except ckptz.StoreLockedError:
            return  # the invariant sees that nothing has changed
        except ckptz.NetworkError:
            self.quiet()
            reader = CheckpointManager(self.place, threads=1)
            if set(reader.all_steps()) == set(self.line):
                return
            base = stores.arrays_of(reader.restore(step, residual=False))
        else:
            base = stores.base_of(writer)
        self.line = line | {step: (state, base)}

    def quiet(self) -> None:
        bucket = self.cloud.bucket()
        bucket.before = bucket.after = fake_objects.nothing

    @rule(
        who=st.integers(0, 1),
        changes=evolving.changes(),
        ahead=st.integers(1, 3),
        fault=st.none() | st.tuples(st.integers(0, 15), st.booleans(), st.booleans()),
    )
    def save_next(
        self, who: int, changes: Any, ahead: int, fault: tuple[int, bool, bool] | None
    ) -> None:
        for change in changes:
            self.tree = evolving.apply(self.tree, change, SHAPES)
        if fault is not None:
            self.arm(*fault)
        step = max(self.line, default=-1) + ahead
        self.save(self.writers[who], step, self.line)
        self.quiet()

    def arm(self, number: int, after: bool, for_ever: bool) -> None:
        """Let a request fail, or all from there on."""
        left = [number]

        def hook(what: str, name: str) -> None:
            left[0] -= 1
            if left[0] == -1 or (for_ever and left[0] < 0):
                raise fake_objects.GenericError("HTTP error: error sending request")

        setattr(self.cloud.bucket(), "after" if after else "before", hook)

    @precondition(lambda self: len(self.line) > 1)
    @rule(who=st.integers(0, 1), number=st.integers(0, 20))
    def go_back(self, who: int, number: int) -> None:
        steps = sorted(self.line)
        step = steps[number % len(steps)]
        writer = self.writers[who]
        writer.reload()
        writer.restore(step, rewind=True)
        self.save(writer, step + 1, {s: self.line[s] for s in steps if s <= step})
        # Where the save was refused the writer would still go on from there.
        self.reopen()

    @precondition(lambda self: len(self.line) > 1)
    @rule(who=st.integers(0, 1), number=st.integers(0, 20))
    def drop(self, who: int, number: int) -> None:
        steps = sorted(self.line)[:-1]
        step = steps[number % len(steps)]
        with contextlib.suppress(ckptz.StoreLockedError):
            self.writers[who].delete(step)
            del self.line[step]

    @precondition(lambda self: self.line)
    @rule(who=st.integers(0, 1))
    def tidy(self, who: int) -> None:
        with contextlib.suppress(ckptz.StoreLockedError):
            if not self.shared:
                self.writers[who].merge()
            assert self.writers[who].gc().dropped == []

    @rule()
    def reopen(self) -> None:
        for writer in self.writers:
            writer.close()
        self.open()

    @precondition(lambda self: self.line)
    @rule(shared=st.booleans())
    def move(self, shared: bool) -> None:
        place = self.new_place(shared)
        for writer in self.writers:
            writer.close()
        done = copy_store(open_storage(self.place), open_storage(place))
        assert not done.problems
        assert copy_store(open_storage(self.place), open_storage(place)).files == 0
        self.place = place
        self.open()

    @invariant()
    def a_reader_finds_all_that_was_acknowledged(self) -> None:
        if not self.line:
            return
        reader = CheckpointManager(self.place, readonly=True, threads=1)
        assert reader.all_steps() == sorted(self.line)
        for step, (_, base) in self.line.items():
            assert stores.arrays_of(reader.restore(step, residual=False)) == base
        assert stores.arrays_of(reader.restore()) == self.line[max(self.line)][0]
        assert reader.verify().ok


StorageMachine.TestCase.settings = settings(stores.examples(25), stateful_step_count=15)
# What warns of loss and of entries that are not finite warns of the states, not of the store.
TestStorage = pytest.mark.filterwarnings(
    "error::ckptz.CkptzWarning",
    "ignore:the rule",
    "ignore:step .* holds entries that are not finite",
    "ignore:.*lossy restores",
)(StorageMachine.TestCase)
