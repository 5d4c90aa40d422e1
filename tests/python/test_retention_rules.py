"""Which steps stay by the rules: case by case, and against a model."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager
from ckptz.retention import Retention
from hypothesis import given
from hypothesis import strategies as st
from retained import TREES, check, train
from stores import small


@pytest.mark.parametrize("full_every", [0, 1, 4, 50])
@pytest.mark.parametrize("keep", [1, 2, 5])
def test_the_newest_stay(tmp_path: Path, keep: int, full_every: int) -> None:
    """transformers PR#25136, SimpleTuner PR#2989: with deltas, the newest stays restorable."""
    manager = CheckpointManager(tmp_path, max_to_keep=keep, full_every=full_every)
    bases = {}
    for step, tree in enumerate(TREES[:12]):
        manager.save(step, tree)
        bases[step] = stores.base_of(manager)
        check(manager, bases, list(range(max(0, step + 1 - keep), step + 1)))
        assert stores.digest(stores.fresh(tmp_path)) == stores.digest(tree)


def test_the_newest_are_so_by_number(tmp_path: Path) -> None:
    """accelerate#1163: 9 -> 10, 99 -> 100."""
    manager = CheckpointManager(tmp_path, max_to_keep=2)
    for step in (2, 9, 10, 99, 100):
        manager.save(step, small(step))
    assert manager.all_steps() == [99, 100]
    manager.save(1000, small(1000))
    assert manager.all_steps() == [100, 1000]


@pytest.mark.parametrize("full_every", [1, 4])
def test_files_that_no_step_needs_go(tmp_path: Path, full_every: int) -> None:
    manager, _ = train(tmp_path, 23, max_to_keep=2, full_every=full_every)
    # Of the newest two, and what these are deltas on.
    assert len(stores.snapshot_files(tmp_path)) == (2 if full_every == 1 else 3)
    assert len(list(tmp_path.glob("*.residual.ckptz"))) == (0 if full_every == 1 else 1)
    assert len(list(tmp_path.glob("*.hidden"))) == (0 if full_every == 1 else 1)
    assert manager.all_steps() == [21, 22]


@pytest.mark.parametrize(
    "options",
    [
        {"max_to_keep": 0},
        {"max_to_keep": -1},
        {"max_to_keep": 1.5},
        {"max_to_keep": True},
        {"keep_period": 0},
        {"keep_every_seconds": 0},
        {"keep_every_seconds": math.nan},
        {"best_fn": len},
        {"best_fn": len, "max_to_keep": 1},
        {"max_files": 2},
        {"loss_budget": -1},
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        CheckpointManager(tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_multiples_stay(tmp_path: Path) -> None:
    manager, bases = train(tmp_path, 14, max_to_keep=2, keep_period=5, full_every=4)
    check(manager, bases, [0, 5, 10, 12, 13])


def test_one_stays_whenever_time_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_700_000_000.0
    manager = CheckpointManager(tmp_path, max_to_keep=1, keep_every_seconds=60)
    monkeypatch.setattr("time.time_ns", lambda: int(now * 1e9))
    for step in range(20):
        manager.save(step, small(step))
        now += 25
    assert manager.all_steps() == [0, 3, 6, 9, 12, 15, 18, 19]
    now -= 10_000  # the clock is put back
    for step in range(20, 25):
        manager.save(step, small(step))
        now += 25
    assert manager.all_steps() == [0, 3, 6, 9, 12, 15, 18, 20, 23, 24]


def test_the_best_stay(tmp_path: Path) -> None:
    losses = [5.0, 3.0, 4.0, math.nan, 2.0, 6.0, 7.0, 3.5]
    options: dict[str, Any] = {"max_to_keep": 3, "best_fn": lambda metrics: -metrics["loss"]}
    with CheckpointManager(tmp_path, **options) as manager:
        for step, loss in enumerate(losses):
            manager.save(step, small(step), metrics={"loss": loss, "n": np.float32(step)})
        assert manager.all_steps() == [1, 4, 7]
        assert manager.stats(4).metrics == {"loss": 2.0, "n": 4.0}
    # What was measured is in the store; a step without metrics is worse than all with.
    with CheckpointManager(tmp_path, **options) as manager:
        manager.save(8, small(8))
        assert manager.all_steps() == [1, 4, 8]
        manager.save(9, small(9), metrics={"loss": 9})
        assert manager.all_steps() == [1, 4, 9]


def test_metrics_that_are_none(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, max_to_keep=2, best_fn=lambda metrics: metrics["loss"])
    for metrics in ({"loss": "low"}, {1: 2.0}, 3, ["loss"]):
        with pytest.raises(ValueError, match="metrics"):
            manager.save(0, small(), metrics=metrics)  # type: ignore[arg-type]
    # The user's own mistake is theirs, before anything is saved.
    with pytest.raises(KeyError):
        manager.save(0, small(), metrics={"accuracy": 1.0})
    assert manager.all_steps() == []


def test_the_last_finite_step_is_never_rotated_out(tmp_path: Path) -> None:
    """pocket-tts PR#262: NaN snapshots push out the good ones."""
    manager = CheckpointManager(tmp_path, max_to_keep=2, full_every=3)
    for step in range(4):
        manager.save(step, small(step))
    with pytest.warns(ckptz.CkptzWarning, match="step 4 holds entries that are not finite in w;"):
        manager.save(4, small(math.nan))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        for step in range(5, 12):
            manager.save(step, small(math.inf))
            assert manager.all_steps() == sorted({3, step - 1, step})
    assert not manager.stats(11).finite
    assert manager.restore(3)["n"] == 3
    manager.save(12, small(12))
    assert manager.all_steps() == [11, 12]


# --- The rules against a model --------------------------------------------------------------------


class Step:
    """What the rules look at."""

    def __init__(self, step: int, created: int, finite: bool, loss: float | None) -> None:
        self.id = step.to_bytes(16, "big")
        extra = [] if loss is None else [0, [], ["loss", loss]]
        self.meta = ckptz.snapshot.Meta(
            step, step, None, b"", created, marks=int(not finite), extra=extra
        )


OPTIONS = st.fixed_dictionaries(
    {
        "max_to_keep": st.integers(2, 6),
        "keep_period": st.none() | st.integers(1, 9),
        "keep_every_seconds": st.none() | st.integers(1, 9),
        "best_fn": st.none() | st.just(lambda metrics: -metrics["loss"]),
    }
)


@stores.examples(60)
@given(st.data(), OPTIONS)
def test_the_rules_drop_what_they_should_and_no_more(
    data: st.DataObject, options: dict[str, Any]
) -> None:
    """Saved one by one, with the rules applied after each, as a run does."""
    rules = Retention(**options)
    there: list[Any] = []
    created = 0
    losses: dict[bytes, float] = {}
    pinned = set()
    for number in range(data.draw(st.integers(1, 25))):
        created += data.draw(st.integers(0, 4000))
        loss = data.draw(st.none() | st.integers(0, 9).map(float))
        step = Step(number, created, data.draw(st.booleans()), loss)
        losses[step.id] = math.inf if loss is None else loss
        there.append(step)
        if data.draw(st.integers(0, 9)) == 0:
            pinned.add(step.id)
        kept = rules.kept(there, pinned)
        assert kept == rules.kept([s for s in there if s.id in kept], pinned), "it is stable"
        dropped = [s for s in there if s.id not in kept]
        assert there[-1].id in kept
        assert pinned & {s.id for s in there} <= kept
        finite = [s for s in there if not s.meta.marks]
        assert not finite or finite[-1].id in kept
        most = options["max_to_keep"]
        assert len(kept) >= min(most, len(there))
        for s in dropped:
            assert options["keep_period"] is None or s.meta.step % options["keep_period"]
            if options["best_fn"] is None:
                assert s not in there[-most:]
            else:
                better = [o for o in there[:-1] if losses[o.id] <= losses[s.id] and o.id in kept]
                assert len(better) >= most - 1
        there = [s for s in there if s.id in kept]
    if options["keep_period"] is None and options["keep_every_seconds"] is None:
        assert len(there) <= options["max_to_keep"] + 1 + len(pinned)


def test_the_rules_hold_for_saves_in_the_background(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, max_to_keep=2, max_files=4, full_every=9) as manager:
        for step, tree in enumerate(TREES):
            manager.save(step, tree, blocking=False, metrics={"step": step})
            if step == 5:
                manager.pin(4)
        manager.gc()  # waits for what is under way
        assert manager.all_steps() == [4, 22, 23]
        assert stores.digest(manager.restore()) == stores.digest(TREES[23])
        assert max(manager.stats(step).restore_files for step in manager) <= 4
        assert manager.stats(22).metrics == {"step": 22.0}
        assert manager.verify().problems == []
