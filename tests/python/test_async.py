"""Saves in the background: what they store, when the caller goes on, and one after another."""

from __future__ import annotations

import gc
import threading
import warnings
from pathlib import Path
from typing import Any

import ckptz
import evolving
import numpy as np
import pytest
import stores
from background_tools import LONG, gate
from ckptz import CheckpointManager
from hypothesis import given
from hypothesis import strategies as st
from stores import saved, small
from trees import assert_same


def layouts() -> dict[str, Any]:
    """Arrays in every layout that a caller may have."""
    rng = np.random.default_rng(0)
    plain = rng.normal(size=(40, 30)).astype("f4")
    return {
        "c": plain.copy(),
        "fortran": np.asfortranarray(plain),
        "slice": rng.normal(size=(90, 60)).astype("f4")[::2, ::-1],
        "big": plain.astype(">f4"),
        "broadcast": rng.normal(size=(1, 30)) + np.zeros((4, 1)),
        "integers": rng.integers(0, 9, 1000),
        "empty": np.zeros((0, 5)),
        "one": np.array(3.5),
        "text": np.array(["a", "bc"]),
        "large": rng.normal(size=700_000).astype("f4"),
    }


def copied(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: np.array(array, order="C") for name, array in tree.items()}


def overwrite(tree: dict[str, Any]) -> None:
    for array in tree.values():
        array[...] = np.zeros((), array.dtype)


@pytest.mark.parametrize("threads", [1, 3])
def test_tensors_may_be_changed_at_once(tmp_path: Path, threads: int) -> None:
    """pytorch#144657, Lightning#20953, torchtitan#930."""
    manager = CheckpointManager(tmp_path, threads=threads)
    for step in range(3):
        tree = layouts()
        tree["c"] += np.float32(step)
        before = copied(tree)
        with gate() as held:
            future = manager.save(step, tree, blocking=False)
            overwrite(tree)
            held.reached()
            assert manager.latest_step() == (step - 1 if step else None)
        assert future.wait(LONG)
        assert_same(manager.restore(), before)
        assert_same(stores.fresh(tmp_path), before)


def test_torch_tensors_may_be_changed_at_once(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install torch")
    weight = torch.randn(50, 40, requires_grad=True)
    half = torch.randn(64).bfloat16()
    tree = {"weight": weight, "t": weight.detach().t(), "half": half, "tied": weight}
    before = {name: tensor.detach().clone() for name, tensor in tree.items()}
    manager = CheckpointManager(tmp_path)
    with gate():
        manager.save(0, tree, blocking=False)
        with torch.no_grad():
            weight.zero_()
            half.zero_()
    manager.wait(LONG)
    found = manager.restore()
    assert found["tied"] is found["weight"]
    for name, tensor in before.items():
        assert torch.equal(found[name], tensor)
        assert found[name].dtype == tensor.dtype


@stores.examples(25)
@given(st.integers(0, 1 << 30), st.lists(evolving.changes(), min_size=1, max_size=5))
def test_files_are_those_of_blocking_saves(
    tmp_path_factory: pytest.TempPathFactory, seed: int, changes: list[list[evolving.Change]]
) -> None:
    """Byte for byte, though the caller's state is gone when they are written."""
    path = tmp_path_factory.mktemp("store")
    for name, blocking in (("here", True), ("background", False)):
        with stores.clock(), CheckpointManager(path / name, full_every=3, threads=2) as manager:
            tree = evolving.beginning(seed)
            for step, several in enumerate([[], *changes]):
                for change in several:
                    tree = evolving.apply(tree, change)
                manager.save(step, tree, blocking=blocking)
    assert stores.files(path / "here") == stores.files(path / "background")


def test_a_future_tells_how_a_save_stands(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    with gate() as held:
        future = manager.save(0, small(), blocking=False)
        assert (future.step, future.staged, future.durable, future.done) == (0, True, False, False)
        assert repr(future) == "SaveFuture(step=0, under way)"
        with pytest.raises(TimeoutError, match="the save of step 0 is still under way"):
            future.wait(0.01)
        with pytest.raises(TimeoutError, match="the save of step 0 is still under way"):
            manager.wait(0)
        held.open()
        assert future.wait(LONG) is True
    assert future.wait() is True
    assert (future.staged, future.durable, future.done) == (True, True, True)
    assert repr(future) == "SaveFuture(step=0, durable)"
    assert future.error is None
    at_once = manager.save(1, small())
    assert (at_once.staged, at_once.durable, at_once.done) == (True, True, True)
    assert at_once.wait()
    manager.wait()


def test_what_is_being_saved_is_not_just_missing(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    with gate() as held:
        manager.save(7, small(7), blocking=False)
        held.reached()
        for use in (manager.restore, manager.open, manager.stats):
            for step in (7, None):
                with pytest.raises(ckptz.MissingSnapshotError, match="step 7 is being saved, wait"):
                    use(step)
        with pytest.raises(ckptz.MissingSnapshotError) as told:
            manager.restore(6)
        assert "being saved" not in str(told.value)
        held.open()
        manager.wait()
    assert manager.restore(7)["n"] == 7


def test_saves_come_one_after_another_in_order(tmp_path: Path) -> None:
    trees = list(stores.training(20))
    with CheckpointManager(tmp_path, full_every=6) as manager:
        futures = [manager.save(step, tree, blocking=False) for step, tree in enumerate(trees)]
        # The next has waited for the one before.
        assert all(future.durable for future in futures[:-1])
        manager.wait()
        assert stores.arrays_of(manager.restore(residual=False)) == stores.base_of(manager)
    assert all(future.durable for future in futures)
    assert manager.all_steps() == list(range(20))
    assert_same(stores.fresh(tmp_path), trees[-1])
    assert manager.verify().ok


def test_a_save_is_skipped_while_one_is_under_way(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    with gate() as held:
        first = manager.save(0, small(0), blocking=False, on_busy="skip")
        for blocking in (False, True):
            second = manager.save(1, small(1), blocking=blocking, on_busy="skip")
            assert (second.skipped, second.staged, second.durable) == (True, False, False)
            assert second.done
            assert second.wait() is False
            assert repr(second) == "SaveFuture(step=1, skipped)"
        held.open()
        assert first.wait(LONG)
    assert not first.skipped
    assert manager.save(2, small(2), blocking=False, on_busy="skip").wait()
    assert manager.all_steps() == [0, 2]
    with pytest.raises(ValueError, match="on_busy='drop' is not 'wait' or 'skip'"):
        manager.save(3, small(3), on_busy="drop")  # type: ignore[arg-type]


def test_what_can_be_told_at_once_is(tmp_path: Path) -> None:
    manager = saved(tmp_path, 3, 5)
    for _ in range(2):
        with pytest.raises(ckptz.StepExistsError):
            manager.save(5, small(), blocking=False)
        with pytest.raises(ckptz.StepOrderError):
            manager.save(4, small(), blocking=False)
        with pytest.raises(ValueError, match="step=-1"):
            manager.save(-1, small(), blocking=False)
        with pytest.raises(ckptz.UnsupportedTypeError, match=r"^a: cannot store"):
            manager.save(6, {"a": object()}, blocking=False)
        other = CheckpointManager(tmp_path)
        with pytest.raises(ckptz.StoreLockedError):
            other.save(6, small(), blocking=False)
        with pytest.raises(ValueError, match="read-only"):
            CheckpointManager(tmp_path, readonly=True).save(6, small(), blocking=False)
        manager.save(5, small(50), blocking=False, overwrite=True)
        manager.wait()
        assert manager.restore()["n"] == 50
    manager.close()
    with pytest.raises(ValueError, match="closed"):
        manager.save(9, small(), blocking=False)
    assert manager.all_steps() == [3, 5]


def test_going_back_waits_for_the_save_under_way(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0, 1, 2)
    manager.save(3, small(3), blocking=False)
    assert manager.restore(1, rewind=True)["n"] == 1
    manager.save(2, small(20), blocking=False).wait()
    assert manager.all_steps() == [0, 1, 2]
    assert manager.restore()["n"] == 20


def test_many_threads_restore_while_saves_run_in_the_background(tmp_path: Path) -> None:
    trees = list(stores.training(25))
    manager = CheckpointManager(tmp_path, full_every=4)
    manager.save(0, trees[0])
    digests = {stores.digest(tree) for tree in trees}
    failures: list[BaseException] = []
    done = threading.Event()

    def reading() -> None:
        try:
            while not done.is_set():
                assert stores.digest(manager.restore()) in digests
                step = manager.latest_step()
                assert step is not None
                manager.restore(max(0, step - 1))
                with manager.open(0) as snapshot:
                    snapshot["model/weight"][3:5]
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=reading) for _ in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for reader in readers:
            reader.start()
        for step, tree in enumerate(trees[1:], 1):
            manager.save(step, tree, blocking=False)
        manager.wait()
        done.set()
        for reader in readers:
            reader.join()
    assert failures == []
    assert manager.all_steps() == list(range(25))


def test_many_threads_save_in_the_background(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    taken = iter(range(1000))
    lock = threading.Lock()
    futures: list[ckptz.SaveFuture] = []

    def saving() -> None:
        for _ in range(5):
            with lock:
                step = next(taken)
                futures.append(manager.save(step, small(step), blocking=step % 3 == 0))

    savers = [threading.Thread(target=saving) for _ in range(4)]
    for saver in savers:
        saver.start()
    for saver in savers:
        saver.join()
    assert all(future.wait(LONG) for future in futures)
    assert [manager.restore(step)["n"] for step in manager] == list(range(20))


def test_a_manager_that_is_dropped_ends_its_thread_and_lets_go(tmp_path: Path) -> None:
    def threads() -> list[str]:
        gc.collect()
        for thread in threading.enumerate():
            if thread.name == "ckptz-save":
                thread.join(0.5)
        return [t.name for t in threading.enumerate() if t.name == "ckptz-save"]

    before = len(threads())
    manager = CheckpointManager(tmp_path)
    future = manager.save(0, small(0), blocking=False)
    del manager
    assert future.wait(LONG)
    with CheckpointManager(tmp_path) as manager:
        manager.save(1, small(1), blocking=False)
    assert manager.all_steps() == [0, 1]
    del manager
    assert len(threads()) == before
