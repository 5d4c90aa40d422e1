"""Saves in the background that fail or are interrupted, and closing while one is under way."""

from __future__ import annotations

import errno
import gc
import threading
from pathlib import Path
from typing import Any

import ckptz
import pytest
import stores
from background_tools import LONG, gate
from ckptz import CheckpointManager, SaveFuture
from faults import ERRORS, Fault, Store, check_after_failure, interrupted
from stores import saved, small
from trees import assert_same


def full_disk() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def failing(manager: CheckpointManager, step: int) -> SaveFuture:
    """Begin a save that fails."""
    with gate() as held:
        held.failure = full_disk()
        future = manager.save(step, small(step), blocking=False)
        held.open()
        assert future.join(LONG)
    return future


# --- Errors come back: orbax#605, keras#23609 -----------------------------------------------------


def test_an_error_is_raised_by_the_next_save(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    for step, blocking in ((1, False), (3, True)):
        future = failing(manager, step)
        assert (future.done, future.durable) == (True, False)
        with pytest.raises(OSError, match="No space left") as found:
            manager.save(step + 1, small(step + 1), blocking=blocking)
        assert found.value is future.error
        # That one did nothing; and it is told once.
        assert manager.latest_step() == step - 1
        manager.save(step + 1, small(step + 1), blocking=blocking)
        manager.wait()
    assert manager.all_steps() == [0, 2, 4]
    assert manager.verify().ok


def test_an_error_is_raised_by_wait(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    future = failing(manager, 1)
    with pytest.raises(OSError, match="No space left"):
        manager.wait()
    manager.wait()
    # Who asks the future is told again.
    with pytest.raises(OSError, match="No space left"):
        future.wait()
    assert repr(future) == "SaveFuture(step=1, OSError(28, 'No space left on device'))"
    manager.save(1, small(1))
    manager.close()


def test_an_error_that_the_future_has_told_of_is_not_told_again(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    with pytest.raises(OSError, match="No space left"):
        failing(manager, 1).wait()
    manager.save(1, small(1), blocking=False)
    manager.close()
    assert manager.all_steps() == [0, 1]


def test_an_error_is_raised_by_close(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    failing(manager, 1)
    with pytest.raises(OSError, match="No space left"):
        manager.close()
    # It is closed all the same.
    saved(tmp_path, 5).close()
    manager.close()
    with pytest.raises(OSError, match="No space left"), saved(tmp_path, 6) as manager:
        failing(manager, 7)


def test_an_error_does_not_hide_the_user_s_own(tmp_path: Path) -> None:
    def work() -> None:
        with saved(tmp_path, 0) as manager:
            failing(manager, 1)
            raise ZeroDivisionError

    warned = pytest.warns(ckptz.CkptzWarning, match="the last save failed: .*No space left")
    with warned, pytest.raises(ZeroDivisionError):
        work()
    saved(tmp_path, 5).close()


def test_an_error_that_nobody_asks_for_is_warned_of(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    failing(manager, 1)
    del manager
    with pytest.warns(ckptz.CkptzWarning, match="the save of step 1 failed: .*No space left"):
        gc.collect()  # the error's traceback refers to all of it


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
@pytest.mark.parametrize("error", ERRORS[:2])
def test_any_call_may_fail(tmp_path: Path, error: Any) -> None:
    """ultralytics#5793, pytorch#156955: the typed error, nothing lost, the next save works."""
    trees = list(stores.training(4))
    stride = max(1, 3 // stores.MORE)
    fired = set()
    for number in range(1, 10_000, stride):
        path = tmp_path / str(number)
        store = Store(path)
        manager = CheckpointManager(path, threads=1)
        for step in range(3):
            store.save(manager, step, trees[step])
        fault = Fault(number, error())
        with fault.armed():
            future = manager.save(3, trees[3], blocking=False)
            future.join(LONG)
        if not fault.fired:
            break
        fired.add(fault.fired)
        if future.error is None:
            # Such as the deletion of an old residual.
            assert future.durable
            continue
        with pytest.raises(OSError, match=r"No space left|Input/output error"):
            manager.wait()
        check_after_failure(store, manager, 3, trees[3])
        manager.close()
    assert len(fired & {"open", "write", "fsync", "rename", "scandir"}) > 2


# --- Interrupts -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
@pytest.mark.parametrize("busy", [False, True])
def test_an_interrupt_at_any_moment(tmp_path: Path, busy: bool) -> None:
    """Ctrl-C may come between any two steps; the store is valid, and one goes on."""
    trees = list(stores.training(5))
    stride = max(1, 97 // stores.MORE)
    for number in range(1 + busy, 1_000_000, stride):
        path = tmp_path / str(number)
        manager = CheckpointManager(path, threads=1)
        manager.save(0, trees[0])
        if busy:
            manager.save(1, trees[1], blocking=False)

        def work(manager: CheckpointManager = manager) -> None:
            manager.save(2, trees[2], blocking=False)
            manager.wait(LONG)
            manager.close(LONG)

        if not interrupted(work, number, "opcode"):
            break
        goes_on(path, manager, trees)
    assert number > 1000


def goes_on(path: Path, manager: CheckpointManager, trees: list[Any]) -> None:
    """Check that after an interrupt nothing hangs, and saves work."""
    manager.wait(LONG)
    manager.close(LONG)
    with CheckpointManager(path) as other:
        steps = other.all_steps()
        assert steps in ([0], [0, 1], [0, 1, 2], [0, 2])
        assert_same(other.restore(), trees[steps[-1]])
        other.save(3, trees[3], blocking=False)
        other.save(4, trees[4], blocking=False).wait(LONG)
        assert other.verify().ok
    assert_same(stores.fresh(path), trees[4])
    assert not list(path.glob(".tmp-*"))


def test_an_interrupt_while_it_is_handed_over(tmp_path: Path) -> None:
    """Then it is under way all the same, and whoever waits sees to it."""
    manager = saved(tmp_path, 0)
    manager.save(1, small(1), blocking=False).wait(LONG)
    background = manager._saver.background
    queue = background._queue
    assert queue is not None

    class Interrupting:
        @staticmethod
        def put(_: object) -> None:
            background._queue = queue
            raise KeyboardInterrupt

    for step in (2, 3):
        background._queue = Interrupting()  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            manager.save(step, small(step), blocking=False)
        if step == 2:
            manager.wait(LONG)
        else:
            assert manager.save(4, small(4), blocking=False, on_busy="skip").skipped
            assert background.last is not None
            assert background.last.join(LONG)
    assert manager.all_steps() == [0, 1, 2, 3]


def test_no_more_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = saved(tmp_path, 0)

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            manager.save(1, small(1), blocking=False)
        manager.wait(0)
    manager.save(2, small(2))
    manager.save(3, small(3), blocking=False).wait(LONG)
    assert manager.all_steps() == [0, 2, 3]
