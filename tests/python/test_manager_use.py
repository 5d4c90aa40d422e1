"""Restoring and saving: keys, fresh memory, threads, interrupts, closing."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager
from stores import saved, small
from trees import assert_same


def test_keys_give_a_flat_dict(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    tied = np.ones(5)
    manager.save(0, {"model": {"a": tied, "b": [tied, 2], "0": 3, 0: 4}, "x": np.zeros(3)})
    assert_same(
        manager.restore(keys="model/*"),
        {"model/a": tied, "model/b/0": tied, "model/b/1": 2, "model/~20": 3, "model/0": 4},
    )
    found = manager.restore(keys=["x", "*/b/*"])
    assert list(found) == ["model/b/0", "model/b/1", "x"]
    same = manager.restore(keys="model/?*")
    assert same["model/a"] is same["model/b/0"]
    patterns: list[Any] = ["nothing", [], "MODEL/*"]
    for keys in patterns:
        with pytest.raises(ckptz.MissingSnapshotError, match="no key path matches"):
            manager.restore(keys=keys)
    assert manager.all_steps() == [0]


def test_keys_that_are_none(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    wrong: list[Any] = [3, [3], ["w", None], b"w", {"w": 1, 3: 2}]
    for keys in wrong:
        with pytest.raises(ValueError, match=r"^keys=.*: .* is not text, a glob of key paths"):
            manager.restore(keys=keys)
    assert manager.all_steps() == [0]


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
def test_keys_that_can_be_looked_at_once_only(tmp_path: Path) -> None:
    """The newest snapshot is damaged: the one before is looked through for the same keys."""
    manager = saved(tmp_path, 0, 1, exact="none", full_every=1)
    path = stores.snapshot_files(tmp_path)[1]
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    manager.reload()
    once: Any = iter(["n", "w"])
    assert_same(manager.restore(keys=once), {"w": np.full(40, 0, "f4"), "n": 0})


def test_restored_arrays_are_fresh_writable_memory(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    for step, tree in enumerate(stores.training(3)):
        manager.save(step, tree)
    first, second = manager.restore(), manager.restore()
    for one, other in zip(
        [first["model"]["weight"], first["optimizer"]["exp_avg"]],
        [second["model"]["weight"], second["optimizer"]["exp_avg"]],
        strict=True,
    ):
        assert one.flags.writeable
        assert one.flags.c_contiguous
        assert not np.shares_memory(one, other)
        one[:] = 0
    assert_same(second, manager.restore())
    manager.save(3, second)
    assert_same(manager.restore(), second)


def test_saving_never_changes_the_caller_s_arrays(tmp_path: Path) -> None:
    tree = {
        "c": stores.weights(0),
        "f": np.asfortranarray(stores.weights(1)),
        "big": stores.weights(2).astype(">f4"),
        "frozen": stores.weights(3),
    }
    tree["frozen"].flags.writeable = False
    before = {name: array.tobytes() for name, array in tree.items()}
    with CheckpointManager(tmp_path) as manager:
        for step in range(4):
            manager.save(step, tree)
            manager.save(step, {name: array + step for name, array in tree.items()}, overwrite=True)
    assert {name: array.tobytes() for name, array in tree.items()} == before
    assert tree["big"].dtype == ">f4"


def test_what_is_not_stored_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    before = stores.files(tmp_path)
    with pytest.raises(ckptz.UnsupportedTypeError, match=r"^a/0: cannot store .* object;"):
        manager.save(1, {"a": [object()]})
    assert stores.files(tmp_path) == before
    manager.save(1, small(1))
    with pytest.raises(ckptz.UnsupportedTypeError):
        CheckpointManager(tmp_path / "new").save(0, object())
    assert not (tmp_path / "new").exists()


def test_progress_counts_bytes(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    wrote: list[int] = []
    tree = {"w": stores.weights(0, (70_000,))}
    manager.save(0, tree, progress=wrote.append)
    assert sum(wrote) == sum(t.bytes - t.header_bytes for t in manager.stats(0).tensors.values())
    read: list[int] = []
    manager.restore(progress=read.append)
    assert sum(read) == sum(wrote)


# --- Threads, reentrance, closing ----------------------------------------------------------------


def test_many_threads_restore_while_one_saves(tmp_path: Path) -> None:
    trees = list(stores.training(25))
    manager = CheckpointManager(tmp_path, full_every=4)
    manager.save(0, trees[0])
    digests = {stores.digest(tree): step for step, tree in enumerate(trees)}
    failures: list[BaseException] = []
    done = threading.Event()

    def reading() -> None:
        try:
            while not done.is_set():
                # What is newest at any time is bit for bit what was saved.
                assert stores.digest(manager.restore()) in digests
                manager.reload()
                step = manager.latest_step()
                assert step is not None
                manager.restore(max(0, step - 1))
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=reading) for _ in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for reader in readers:
            reader.start()
        for step, tree in enumerate(trees[1:], 1):
            manager.save(step, tree)
        done.set()
        for reader in readers:
            reader.join()
    assert failures == []
    assert manager.all_steps() == list(range(25))


def test_many_threads_save_one_at_a_time(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    taken = iter(range(1000))
    lock = threading.Lock()
    failures: list[BaseException] = []

    def saving() -> None:
        try:
            for _ in range(5):
                with lock:
                    step = next(taken)
                    manager.save(step, small(step))
        except BaseException as error:
            failures.append(error)

    savers = [threading.Thread(target=saving) for _ in range(4)]
    for saver in savers:
        saver.start()
    for saver in savers:
        saver.join()
    assert failures == []
    assert [manager.restore(step)["n"] for step in manager] == list(range(20))


def test_a_save_within_a_save_is_refused(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    errors: list[Exception] = []

    def again(_: int) -> None:
        for step in (9, 1):
            with pytest.raises(ckptz.CkptzError, match="still under way") as found:
                manager.save(step, small(9))
            errors.append(found.value)

    manager.save(1, {"w": stores.weights(1), "n": 1}, progress=again)
    assert errors
    assert manager.all_steps() == [0, 1]
    manager.save(2, small(2))


def test_closing_within_a_save_waits_for_it(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    held: list[bool] = []

    def stop(_: int) -> None:
        manager.close()
        with pytest.raises(ckptz.StoreLockedError):
            saved(tmp_path, 5)
        held.append(True)

    manager.save(1, {"w": stores.weights(1), "n": 1}, progress=stop)
    assert held
    with saved(tmp_path, 2) as other:
        assert other.all_steps() == [0, 1, 2]


def test_a_closed_manager(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    manager.close()
    manager.close()
    with pytest.raises(ValueError, match="this manager is closed"):
        manager.save(1, small(1))
    assert_same(manager.restore(), small(0))
    with manager as again:
        assert again is manager


def test_an_interrupt_by_the_progress_callback_loses_nothing(tmp_path: Path) -> None:
    trees = list(stores.training(4))
    manager = CheckpointManager(tmp_path, full_every=2)

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    for step, tree in enumerate(trees):
        with pytest.raises(KeyboardInterrupt):
            manager.save(step, tree, progress=interrupt)
        manager.save(step, tree)
        assert_same(manager.restore(), tree)
        assert not list(tmp_path.glob(".tmp-*"))


def test_nothing_stays_open(tmp_path: Path) -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    saved(tmp_path, 0, 1).close()
    before = descriptors()
    with CheckpointManager(tmp_path) as manager:
        manager.save(2, small(2))
        manager.restore(0)
        with manager.open(1) as snapshot:
            snapshot["w"].numpy()
        manager.open(2)["w"].numpy()
        manager.verify()
        manager.stats(1)
        with pytest.raises(ckptz.StepExistsError):
            manager.save(2, small(2))
    assert descriptors() == before
    forgotten = saved(tmp_path, 3)
    del forgotten
    assert descriptors() == before
    with saved(tmp_path, 4) as manager:
        assert manager.latest_step() == 4
