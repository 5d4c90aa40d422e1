"""Closing while a save is under way, and calls from within one."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import ckptz
import pytest
import stores
from background_tools import LONG, gate
from ckptz import CheckpointManager
from stores import saved, small
from trees import assert_same

# --- From within a save ---------------------------------------------------------------------------


def test_a_save_in_the_background_cannot_wait_for_itself(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    errors: list[str] = []

    def again(_: int) -> None:
        for work in (
            lambda: manager.save(9, small(9)),
            lambda: manager.save(9, small(9), blocking=False, on_busy="skip"),
            lambda: manager.restore(0, rewind=True),
            lambda: manager.wait(),
        ):
            with pytest.raises(ckptz.CkptzError) as found:
                work()
            errors.append(str(found.value))

    future = manager.save(1, {"w": stores.weights(1), "n": 1}, blocking=False, progress=again)
    assert future.wait(LONG)
    assert errors[:4] == ["a save of this thread is still under way"] * 3 + [
        "the save of step 1 cannot wait for itself"
    ]
    assert manager.all_steps() == [0, 1]


def test_closing_within_a_save_in_the_background(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    stop = lambda _: manager.close()  # noqa: E731
    future = manager.save(1, {"w": stores.weights(1), "n": 1}, blocking=False, progress=stop)
    assert future.wait(LONG)
    with saved(tmp_path, 2) as other:
        assert other.all_steps() == [0, 1, 2]
    with pytest.raises(ValueError, match="this manager is closed"):
        manager.save(3, small(3))


# --- Closing --------------------------------------------------------------------------------------


def test_closing_drains(tmp_path: Path) -> None:
    """Lightning#21406."""
    with gate() as held:
        manager = CheckpointManager(tmp_path)
        future = manager.save(0, small(0), blocking=False)
        threading.Timer(0.1, held.open).start()
        manager.close(LONG)
        assert future.durable
    assert_same(stores.fresh(tmp_path), small(0))
    assert_same(manager.restore(), small(0))
    saved(tmp_path, 1).close()


def test_closing_with_a_time_limit(tmp_path: Path) -> None:
    with gate() as held:
        manager = CheckpointManager(tmp_path)
        future = manager.save(0, small(0), blocking=False)
        held.reached()
        for _ in range(2):
            with pytest.raises(TimeoutError, match="the save of step 0 is still under way"):
                manager.close(0.01)
        with pytest.raises(ValueError, match="this manager is closed"):
            manager.save(1, small(1))
        # The save is under way, and so the store its own.
        with pytest.raises(ckptz.StoreLockedError):
            saved(tmp_path / ".", 1)
        held.open()
        assert future.wait(LONG)
    manager.close()
    with saved(tmp_path, 1) as other:
        assert other.all_steps() == [0, 1]


def test_a_store_is_let_go_of_though_closing_took_too_long(tmp_path: Path) -> None:
    with gate() as held:
        manager = CheckpointManager(tmp_path)
        future = manager.save(0, small(0), blocking=False)
        with pytest.raises(TimeoutError):
            manager.close(0)
        held.open()
        assert future.wait(LONG)
    with saved(tmp_path, 1) as other:
        assert other.all_steps() == [0, 1]
    assert manager.all_steps() == [0]


def test_waiters_do_not_disturb_one_another(tmp_path: Path) -> None:
    """One gives up, others are told."""
    with gate() as held:
        manager = CheckpointManager(tmp_path)
        future = manager.save(0, small(0), blocking=False)
        found: list[bool] = []
        waiting = [
            threading.Thread(target=lambda: found.append(future.wait(LONG))) for _ in range(5)
        ]
        for thread in waiting:
            thread.start()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                future.wait(0.01)
        time.sleep(0.05)
        held.open()
        for thread in waiting:
            thread.join(LONG)
    assert found == [True] * 5
