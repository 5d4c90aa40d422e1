"""One writer at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import ckptz
import pytest
import stores
from ckptz import CheckpointManager
from ckptz.storage import LocalStorage
from faults import interrupted
from stores import begun
from trees import assert_same

TREES = list(stores.training(8))


def test_a_second_writer_is_refused_at_once(tmp_path: Path) -> None:
    first = begun(tmp_path, 2)
    second = CheckpointManager(tmp_path)
    with pytest.raises(ckptz.StoreLockedError, match="another writer holds this store") as found:
        second.save(2, TREES[2])
    assert isinstance(found.value, OSError)
    assert str(tmp_path) in str(found.value)
    assert_same(second.restore(), TREES[1])
    first.save(2, TREES[2])
    first.close()
    second.save(3, TREES[3])
    assert second.all_steps() == [0, 1, 2, 3]
    assert_same(second.restore(), TREES[3])


def test_a_second_writer_in_another_process(tmp_path: Path) -> None:
    code = """
import sys, ckptz, stores
manager = ckptz.CheckpointManager(sys.argv[1])
try:
    manager.save(5, next(stores.training(1)))
except ckptz.StoreLockedError:
    print("locked")
else:
    print("saved")
"""
    manager = begun(tmp_path, 2)
    assert stores.run_python(code, tmp_path).stdout == "locked\n"
    manager.close()
    assert stores.run_python(code, tmp_path).stdout == "saved\n"


def test_the_lock_of_a_dead_writer_is_free(tmp_path: Path) -> None:
    code = """
import os, sys, ckptz, stores
manager = ckptz.CheckpointManager(sys.argv[1])
manager.save(0, next(stores.training(1)))
os._exit(1)
"""
    stores.run_python(code, tmp_path, ok=False)
    with CheckpointManager(tmp_path) as manager:
        manager.save(1, TREES[1])


def test_the_lock_is_taken_by_the_first_save_and_not_before(tmp_path: Path) -> None:
    first, second = CheckpointManager(tmp_path), CheckpointManager(tmp_path)
    assert list(tmp_path.iterdir()) == []
    second.save(0, TREES[0])
    with pytest.raises(ckptz.StoreLockedError):
        first.save(0, TREES[0])


def test_an_error_before_the_lock_leaves_it_free(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    with pytest.raises(ValueError, match="step=-1"):
        manager.save(-1, {})
    with CheckpointManager(tmp_path) as other:
        other.save(0, TREES[0])


def test_a_manager_that_is_dropped_lets_go(tmp_path: Path) -> None:
    begun(tmp_path, 2)
    with CheckpointManager(tmp_path) as manager:
        manager.save(2, TREES[2])


def in_child(work: Any) -> str:
    """What a forked child says that work does."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, str(work()).encode() or b"done")
        except BaseException as error:
            os.write(write, type(error).__name__.encode())
        os._exit(0)
    os.close(write)
    said = os.read(read, 4096).decode()
    os.close(read)
    os.waitpid(child, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_no_second_writer(tmp_path: Path) -> None:
    """Loader processes are forked from a trainer that holds the lock."""
    manager = CheckpointManager(tmp_path, threads=1)
    manager.save(0, TREES[0])
    assert in_child(lambda: manager.save(1, TREES[1])) == "OtherProcessError"
    # What a child does with its copy of the manager does not let go of the parent's lock.
    assert in_child(manager.close) == "None"
    other = CheckpointManager(tmp_path)
    with pytest.raises(ckptz.StoreLockedError):
        other.save(1, TREES[1])
    manager.save(1, TREES[1])


def test_children_that_live_on_do_not_hold_the_lock(tmp_path: Path) -> None:
    manager = begun(tmp_path, 2)
    # Stands for a forked child: the descriptor is shared in the same way.
    storage = manager._store.storage
    assert isinstance(storage, LocalStorage)
    assert storage._lock is not None
    held = os.dup(storage._lock.fileno())
    manager.close()
    with CheckpointManager(tmp_path) as other:
        other.save(2, TREES[2])
    os.close(held)


def test_a_lock_whose_file_was_deleted_is_taken_anew(tmp_path: Path) -> None:
    manager = begun(tmp_path, 2)
    (tmp_path / "lock").unlink()
    with CheckpointManager(tmp_path) as other:
        other.save(2, TREES[2])
        with pytest.raises(ckptz.StoreLockedError):
            manager.save(3, TREES[3])
    manager.save(3, TREES[3])
    assert manager.all_steps() == [0, 1, 2, 3]
    with open(tmp_path / "lock") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_store_that_vanishes_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "store"
    manager = begun(path, 2)
    shutil.rmtree(path)
    assert manager.verify().ok
    with pytest.raises(ckptz.MissingSnapshotError):
        manager.restore()
    manager.save(2, TREES[2])
    assert manager.all_steps() == [2]
    assert manager.stats(2).kind == "full"
    assert_same(stores.fresh(path), TREES[2])
    with pytest.raises(ckptz.StoreLockedError):
        CheckpointManager(path).save(9, TREES[3])


def test_an_interrupted_unlock_is_finished_by_the_next(tmp_path: Path) -> None:
    """Also where someone keeps the interrupt, and with it the frames: a debugger, a notebook."""
    kept: list[BaseException] = []

    def unlock(storage: LocalStorage) -> None:
        try:
            storage.unlock()
        except KeyboardInterrupt as interrupt:
            kept.append(interrupt)
            raise

    for number in range(1, 10_000):
        storage, other = LocalStorage(tmp_path), LocalStorage(tmp_path)
        storage.lock()
        found = interrupted(partial(unlock, storage), number, "opcode")
        storage.unlock()
        assert not storage.locked
        other.lock()
        assert other.locked
        other.unlock()
        if not found:
            break
    assert len(kept) == number - 1 > 20
