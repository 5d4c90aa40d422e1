"""Saves that fail: at any call, by any error, nothing that was acknowledged is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stores
from ckptz import CheckpointManager
from faults import ERRORS, Fault, Store, check_after_failure, interrupted, save_with
from trees import assert_same

Prepare = Callable[[Path], tuple[Store, CheckpointManager]]


def tree(step: int) -> stores.State:
    noise = stores.weights(step, (40, 10)) * np.float32(0.01)
    return {"w": stores.weights(1000, (40, 10)) + noise, "n": np.arange(step), "step": step}


def new(path: Path) -> tuple[Store, CheckpointManager]:
    return Store(path / "deep" / "store"), CheckpointManager(path / "deep" / "store")


def with_three(path: Path, **options: Any) -> tuple[Store, CheckpointManager]:
    store = Store(path / "store")
    manager = CheckpointManager(store.path, **options)
    for step in range(3):
        store.save(manager, step, tree(step))
    return store, manager


def delta(path: Path) -> tuple[Store, CheckpointManager]:
    return with_three(path)


def full(path: Path) -> tuple[Store, CheckpointManager]:
    return with_three(path, full_every=3)


def reopened(path: Path) -> tuple[Store, CheckpointManager]:
    store, manager = with_three(path)
    manager.close()
    return store, CheckpointManager(store.path)


def without_residual(path: Path) -> tuple[Store, CheckpointManager]:
    return with_three(path, exact="none", policy="exact")


SITUATIONS = [new, delta, full, reopened, without_residual]


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", ERRORS, ids=["ENOSPC", "EIO", "interrupt"])
@pytest.mark.parametrize("prepare", SITUATIONS)
def test_every_call_of_a_save_fails(
    tmp_path: Path, prepare: Prepare, error: Callable[[], BaseException], after: bool
) -> None:
    fired = set()
    for number in count(1):
        folder = tmp_path / str(number)
        store, manager = prepare(folder)
        fault = Fault(number, error(), after)
        found = save_with(fault, manager, 3, tree(3))
        if not fault.fired:
            break
        fired.add(fault.fired)
        if found is None:
            store.save_done(manager, 3, tree(3))
        next_step = 4 if found is None else 3
        check_after_failure(store, manager, next_step, tree(next_step))
        manager.close()
    assert found is None
    assert {"open", "write", "fsync", "rename", "close", "scandir", "fstat"} <= fired
    assert len(fault.names) >= 15


@pytest.mark.parametrize("prepare", SITUATIONS)
def test_short_writes_are_completed(tmp_path: Path, prepare: Prepare) -> None:
    store, manager = prepare(tmp_path)
    real = os.write
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[: 1 + len(data) // 3]))
        manager.save(3, tree(3))
    assert_same(stores.fresh(store.path), tree(3))
    assert manager.verify().ok


def test_a_write_of_nothing_is_an_error_not_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, manager = with_three(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda *_: 0)
        with pytest.raises(OSError, match="nothing could be written") as found:
            manager.save(3, tree(3))
    assert found.value.filename == str(store.path)
    check_after_failure(store, manager, 3, tree(3))


def test_short_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = with_three(tmp_path)
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: real(fd, [views[0][:7]], at))
    store.check()


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("prepare", [delta, full, reopened])
def test_an_interrupt_at_any_line(tmp_path: Path, prepare: Prepare) -> None:
    """Ctrl-C comes between any two lines of Python, not only in a call."""
    stride = max(1, 41 // stores.MORE)
    start = len(prepare.__name__) % stride + 1
    for number in range(start, 1_000_000, stride):
        folder = tmp_path / str(number)
        store, manager = prepare(folder)
        if not interrupted(lambda: manager.save(3, tree(3)), number):  # noqa: B023
            break
        check_after_failure(store, manager, 3, tree(3))
        manager.close()
    assert number > 500
