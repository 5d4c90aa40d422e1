"""A state that changes while it is saved: what is kept is of one moment, or nothing is."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager, StateChangedError
from trees import assert_same


def many(value: float) -> stores.State:
    rng = np.random.default_rng(3)
    state = {name: rng.normal(size=1000).astype("f4") for name in "abc"}
    state["n"] = np.arange(50)
    for array in state.values():
        array += np.asarray(value, array.dtype)
    return state


def copy_of(state: stores.State) -> stores.State:
    return {name: array.copy() for name, array in state.items()}


def change(state: stores.State) -> None:
    for array in state.values():
        array += np.asarray(7, array.dtype)


@pytest.mark.parametrize("exact", ["latest", "none"])
def test_a_change_during_a_full_snapshot_does_no_harm(tmp_path: Path, exact: Any) -> None:
    manager = CheckpointManager(tmp_path, "exact", exact=exact)
    state = many(0)
    saved = copy_of(state)
    manager.save(0, state, progress=lambda _: change(state))
    assert_same(stores.fresh(tmp_path), saved)
    assert stores.base_of(manager) == stores.arrays_of(saved)
    manager.save(1, state)
    assert_same(stores.fresh(tmp_path, residual=False), state)
    assert_same(manager.restore(0), saved)
    assert manager.verify().ok


def test_a_change_during_a_sync_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread goes on training while the disk is slow."""
    manager = CheckpointManager(tmp_path, "exact", full_every=1)
    manager.save(0, many(0))  # which makes and syncs the folder
    state = many(1)
    saved = copy_of(state)
    real = os.fsync

    def slow(descriptor: int) -> None:
        trainer = threading.Thread(target=change, args=(state,))
        trainer.start()
        trainer.join()
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", slow)
        manager.save(1, state)
    assert_same(stores.fresh(tmp_path), saved)
    assert stores.base_of(manager) == stores.arrays_of(saved)
    manager.save(2, state)
    assert_same(stores.fresh(tmp_path), state)


def test_a_change_of_a_new_tensor_does_no_harm(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, "exact")
    manager.save(0, {"a": np.arange(9.0)})
    state = {"a": np.arange(9.0), "new": stores.weights(1)}
    saved = copy_of(state)
    manager.save(1, state, progress=lambda _: change({"new": state["new"]}))
    manager.save(2, state)
    assert_same(stores.fresh(tmp_path, step=1), saved)
    assert_same(stores.fresh(tmp_path), state)


def test_no_residual_of_another_state(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    first, state = many(0), many(0.25)
    manager.save(0, first)
    before = stores.files(tmp_path)
    with pytest.raises(StateChangedError, match=r"step 1 is not saved"):
        manager.save(1, state, progress=lambda _: change({"a": state["a"]}))
    assert stores.files(tmp_path) == before
    assert manager.all_steps() == [0]
    assert_same(manager.restore(), first)
    manager.save(1, state)
    assert_same(stores.fresh(tmp_path), state)
    assert manager.verify().ok
    assert issubclass(StateChangedError, ckptz.CkptzError)


def test_a_change_of_what_is_not_contiguous_is_seen(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    wide = stores.weights(0, (64, 64))
    manager.save(0, {"w": wide.T})
    wide += np.float32(0.01) * stores.weights(1, (64, 64))

    def one_entry(_: int) -> None:
        wide[63, 1] += 1

    with pytest.raises(StateChangedError):
        manager.save(1, {"w": wide.T}, progress=one_entry)
