"""Which steps stay: the rules, pins, deleting, collecting; and that nothing needed goes."""

from __future__ import annotations

import math
import os
import shutil
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
from stores import saved, small

TREES = list(stores.training(24))


def train(path: Path, steps: int, **options: Any) -> tuple[CheckpointManager, dict[int, Any]]:
    """Manager of a store with some steps, and what its reconstructions are."""
    manager = CheckpointManager(path, **options)
    bases = {}
    for step in range(steps):
        manager.save(step, TREES[step])
        bases[step] = stores.base_of(manager)
    return manager, bases


def check(manager: CheckpointManager, bases: dict[int, Any], steps: list[int]) -> None:
    """Check that there are these steps, here and for fresh readers, with the right content."""
    for one in (manager, CheckpointManager(manager.path, readonly=True)):
        assert one.all_steps() == steps
        for step in steps:
            assert stores.arrays_of(one.restore(step, residual=False)) == bases[step]
        assert one.verify().problems == []


# --- Rules ----------------------------------------------------------------------------------------


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


# --- Pins -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_a_pinned_step_stays_and_stays_exact(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, max_to_keep=1, full_every=4)
    for step in range(16):
        manager.save(step, TREES[step])
        if step in (2, 7):
            manager.pin()
            manager.pin(step)
    assert manager.all_steps() == [2, 7, 15]
    assert manager.pinned_steps() == [2, 7]
    reader = CheckpointManager(tmp_path, readonly=True)
    for step in (2, 7, 15):
        assert stores.digest(reader.restore(step)) == stores.digest(TREES[step])
        assert reader.stats(step).exact
    assert reader.stats(7).pinned
    with pytest.raises(ValueError, match="step 7 is pinned; unpin it first"):
        manager.delete(7)
    manager.unpin(7)
    manager.save(16, TREES[16])
    assert manager.all_steps() == [2, 16]
    assert CheckpointManager(tmp_path).pinned_steps() == [2]
    manager.unpin(2)
    manager.gc()
    assert manager.all_steps() == [16]
    assert not list(tmp_path.glob("*.pin"))


@pytest.mark.parametrize("full_every", [1, 50])
@pytest.mark.parametrize("crash", [False, True])
def test_a_pin_is_of_the_step_whatever_is_saved_as_it(
    tmp_path: Path, full_every: int, crash: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"max_to_keep": 2, "full_every": full_every}
    manager = CheckpointManager(tmp_path, **options)
    manager.save(1, TREES[1])
    manager.pin(1)
    with monkeypatch.context() as patch:
        if crash:  # .. right after the commit
            patch.setattr("ckptz.keeping.Keeper.after_save", lambda *_: None)
        manager.save(1, TREES[2], overwrite=True)
        manager.close()
    manager = CheckpointManager(tmp_path, **options)
    for step in range(3, 8):
        manager.save(step, TREES[step])
        manager.gc()
        assert manager.all_steps() == sorted({1, max(3, step - 1), step})
        assert stores.digest(stores.fresh(tmp_path, step=1)) == stores.digest(TREES[2])
        assert manager.pinned_steps() == [1]
    if not crash:
        assert len(list(tmp_path.glob("*.pin"))) == 1
    manager.unpin(1)
    assert manager.gc().dropped == [1]
    assert not list(tmp_path.glob("*.pin"))
    assert manager.all_steps() == CheckpointManager(tmp_path).all_steps() == [6, 7]


def test_a_pin_outlives_a_rewind(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 6, full_every=50)
    manager.pin(5)
    manager.restore(2, rewind=True)
    manager.save(3, TREES[9])
    manager.gc()
    assert manager.all_steps() == [0, 1, 2, 3]
    # It is off the line now; its file is there still, and what it needs.
    assert len(stores.snapshot_files(tmp_path)) == 7
    assert manager.verify().snapshots == 7


def test_pins_of_what_is_not_there(tmp_path: Path) -> None:
    manager = saved(tmp_path, 1)
    for use in (manager.pin, manager.unpin, manager.delete):
        with pytest.raises(ckptz.MissingSnapshotError, match="no snapshot of step 2"):
            use(2)
    empty = CheckpointManager(tmp_path / "empty")
    for call in (empty.pin, empty.gc, empty.merge):
        with pytest.raises(ckptz.MissingSnapshotError, match="there is no store"):
            call()
    assert not (tmp_path / "empty").exists()


def test_a_damaged_pin_still_holds_by_its_name(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 3, max_to_keep=1)
    manager.pin()
    pin = next(tmp_path.glob("*.pin"))
    pin.write_bytes(b"")
    manager.save(3, TREES[3])
    assert manager.all_steps() == [2, 3]
    pin.unlink()
    (tmp_path / "odd.pin").write_bytes(b"junk")
    with pytest.warns(ckptz.CkptzWarning, match="odd.pin: offset 0: not a mark"):
        manager.save(4, TREES[4])
    assert manager.all_steps() == [4]


def test_readers_and_other_writers_change_nothing(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 3)
    before = stores.files(tmp_path)
    reader = CheckpointManager(tmp_path, readonly=True, max_to_keep=1)
    assert reader.gc(dry_run=True).dropped == [0, 1]
    for use in (reader.pin, reader.gc, reader.merge, lambda: reader.delete(1)):
        with pytest.raises(ValueError, match="read-only"):
            use()
    other = CheckpointManager(tmp_path)
    for use in (other.pin, other.gc, other.merge, lambda: other.delete(1)):
        with pytest.raises(ckptz.StoreLockedError):
            use()
    assert stores.files(tmp_path) == before
    manager.close()


# --- Deleting and collecting ----------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("full_every", [1, 3, 50])
@pytest.mark.parametrize("victim", range(7))
def test_deleting_any_step(tmp_path: Path, full_every: int, victim: int) -> None:
    manager, bases = train(tmp_path, 7, full_every=full_every)
    manager.delete(victim)
    left = [step for step in range(7) if step != victim]
    check(manager, bases, left)
    with pytest.raises(ckptz.MissingSnapshotError):
        manager.restore(victim)
    needed = victim < 6 and full_every > 1 and (victim + 1) % full_every != 0
    there = bool(list(tmp_path.glob(f"{victim:010d}-????????????????.ckptz")))
    assert there == needed
    manager.save(7, TREES[7])
    assert stores.arrays_of(manager.restore(7, residual=False)) == stores.base_of(manager)
    assert manager.all_steps() == [*left, 7]


def test_deleting_all_steps(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 4)
    for step in (2, 0, 3, 1):
        manager.delete(step)
    assert manager.all_steps() == []
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    manager.save(0, TREES[0])
    assert manager.all_steps() == [0]


def test_deleting_the_newest_does_not_bring_back_what_was_left_behind(tmp_path: Path) -> None:
    manager = saved(tmp_path, *range(6))
    manager.restore(2, rewind=True)
    manager.save(3, small(30))
    manager.delete(3)
    for one in (manager, CheckpointManager(tmp_path)):
        assert one.all_steps() == [0, 1, 2]
    manager.save(4, small(40))
    manager.gc()
    assert manager.all_steps() == [0, 1, 2, 4]
    assert len(stores.snapshot_files(tmp_path)) == 4


@pytest.mark.parametrize("keep", [None, 3])
def test_collecting_does_not_bring_back_what_was_left_behind(
    tmp_path: Path, keep: int | None
) -> None:
    manager = saved(tmp_path, 1, 2, 3, max_to_keep=keep)
    manager.merge()  # 3 is in a file with 2 from here on
    manager.restore(2, rewind=True)
    manager.save(4, small(40))
    manager.delete(4)
    for _ in range(2):
        assert manager.all_steps() == CheckpointManager(tmp_path).all_steps() == [1, 2]
        manager.gc()
    assert manager.gc().files == []
    assert manager.verify().problems == []
    manager.save(5, small(5))
    assert manager.all_steps() == [1, 2, 5]


def test_a_merged_file_may_hold_what_has_lost_its_parent_to_a_rewind(tmp_path: Path) -> None:
    manager, bases = train(tmp_path, 5, full_every=3)  # 3 is full, 4 a delta on it
    manager.merge([0, 1, 2, 4])
    manager.restore(2, rewind=True)
    manager.save(5, TREES[5])
    bases[5] = stores.base_of(manager)
    assert [name[:10] for name in manager.gc().files] == ["0000000003"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(manager, bases, [0, 1, 2, 5])
        manager.merge()
        manager.gc()
        check(manager, bases, [0, 1, 2, 5])


def test_generations_go_together(tmp_path: Path) -> None:
    manager = saved(tmp_path, 1, 2)
    manager.save(2, small(20), overwrite=True)
    manager.delete(2)
    assert CheckpointManager(tmp_path).all_steps() == [1]
    manager.save(2, small(21))
    manager.save(2, small(22), overwrite=True)
    manager.save(3, small(3))
    manager.gc()
    assert manager.all_steps() == [1, 2, 3]
    assert manager.restore(2)["n"] == 22


def test_where_a_rewind_goes_on_from_stays(tmp_path: Path) -> None:
    manager, bases = train(tmp_path, 5)
    manager.close()
    manager = CheckpointManager(tmp_path, max_to_keep=1)
    manager.restore(1, rewind=True)
    with pytest.raises(ValueError, match="where the next save goes on from"):
        manager.delete(1)
    manager.gc()
    assert manager.all_steps() == [1]
    manager.save(2, TREES[9])
    assert manager.all_steps() == [2]
    assert stores.arrays_of(manager.restore(2, residual=False)) == stores.base_of(manager)
    assert bases


@pytest.mark.filterwarnings("error")
def test_collecting_what_is_left_over(tmp_path: Path) -> None:
    manager, bases = train(tmp_path, 6, full_every=50)
    manager.restore(2, rewind=True)
    manager.save(3, TREES[9])
    bases[3] = stores.base_of(manager)
    newest = stores.snapshot_files(tmp_path)[-1]
    shutil.copyfile(newest, tmp_path / "a copy.ckptz")
    residual = next(tmp_path.glob("*.residual.ckptz"))
    shutil.copyfile(residual, tmp_path / "a copy.residual.ckptz")
    (tmp_path / "notes.txt").write_text("not ours")
    before = stores.files(tmp_path)
    told = manager.gc(dry_run=True)
    assert stores.files(tmp_path) == before
    found = manager.gc()
    assert found == told
    assert (found.kept, found.dropped) == ([0, 1, 2, 3], [])
    after = stores.files(tmp_path)
    assert set(before) - set(after) == set(found.files)
    assert sum(len(before[name]) for name in found.files) == found.bytes
    assert len(after) == 6
    check(manager, bases, [0, 1, 2, 3])
    assert manager.gc().files == []


def test_single_files_in_a_store_are_not_its_own(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 5, max_to_keep=2, full_every=2)
    ckptz.save_file(TREES[7], tmp_path / "best.ckptz")
    ckptz.save_file(TREES[8], tmp_path / "other.ckptz")
    manager.save(5, TREES[5])
    manager.gc()
    manager.delete(4)
    manager.merge()
    assert manager.all_steps() == [5]
    for step, name in ((7, "best"), (8, "other")):
        found = ckptz.load_file(tmp_path / f"{name}.ckptz")
        assert stores.digest(found) == stores.digest(TREES[step])
    # Nor are they where there is nothing else.
    for path in [*tmp_path.glob("0*"), tmp_path / "lock"]:
        path.unlink()
    manager.close()
    manager = CheckpointManager(tmp_path, max_to_keep=1)
    manager.gc()
    assert sorted(path.name for path in tmp_path.glob("*.ckptz")) == ["best.ckptz", "other.ckptz"]


def test_files_that_cannot_be_read_are_left_alone_and_what_may_need_them(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 5, full_every=50)
    manager.close()
    path = stores.snapshot_files(tmp_path)[1]
    good = path.read_bytes()
    path.write_bytes(good[:-5])
    with pytest.warns(ckptz.CkptzWarning, match="skipped"):
        manager = CheckpointManager(tmp_path)
    manager.save(5, TREES[5])
    assert manager.gc().files == []
    assert manager.all_steps() == [0, 5]
    path.write_bytes(good)
    manager.reload()
    # They have left the line, for the save could not go on from them; but they are whole.
    report = manager.verify()
    assert (report.ok, report.snapshots, report.steps) == (True, 6, [0, 5])


def test_what_needs_a_lost_file_stays(tmp_path: Path) -> None:
    manager, bases = train(tmp_path, 5, full_every=50)
    path = stores.snapshot_files(tmp_path)[1]
    good = path.read_bytes()
    path.unlink()
    with pytest.warns(ckptz.CkptzWarning, match="3 snapshots cannot be restored") as told:
        manager.reload()
    first = stores.snapshot_files(tmp_path)[1].name
    text = str(told[0].message)
    assert len(told) == 1
    assert first in text
    assert any(one.hex() in text for one in manager._store.orphans.values())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        manager.reload()
        assert manager.all_steps() == [0]
        assert manager.gc().files == []
        assert len(manager.verify().problems) == 3
        path.write_bytes(good)
        manager.reload()
    check(manager, bases, list(range(5)))
    assert stores.digest(manager.restore()) == stores.digest(TREES[4])


def test_a_lost_base_does_not_take_the_rest_with_it(tmp_path: Path) -> None:
    train(tmp_path, 12, max_to_keep=3)[0].close()
    path = stores.snapshot_files(tmp_path)[0]
    good = path.read_bytes()
    path.unlink()
    before = stores.files(tmp_path)
    assert any(name.endswith(".residual.ckptz") for name in before)
    with pytest.warns(ckptz.CkptzWarning, match="3 snapshots cannot be restored"):
        manager = CheckpointManager(tmp_path, max_to_keep=3)
    assert manager.latest_step() is None
    for step in range(4):
        manager.save(step, TREES[step])
    manager.gc()
    assert manager.all_steps() == [1, 2, 3]
    assert before.items() <= stores.files(tmp_path).items()
    path.write_bytes(good)
    manager.reload()
    assert manager.verify().problems == []
    manager.gc()
    assert len(stores.snapshot_files(tmp_path)) == 4


def test_a_save_succeeds_though_nothing_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, bases = train(tmp_path, 4, max_to_keep=2, full_every=2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        patch.setattr(Path, "unlink", refuse)
        for step in (4, 5):
            with pytest.warns(ckptz.CkptzWarning, match="the next save tries again"):
                manager.save(step, TREES[step])
    assert stores.digest(manager.restore()) == stores.digest(TREES[5])
    manager.save(6, TREES[6])
    assert manager.all_steps() == [5, 6]
    assert len(stores.snapshot_files(tmp_path)) == 3
    assert bases


def refuse(*_: Any, **__: Any) -> None:
    raise PermissionError(1, "Operation not permitted", "a file")


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
