"""The budget for loss, tensors that are saved now and then, and what is recorded of both."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager, Policy, Rule
from stores import small

TREES = list(stores.training(24))


def restores(manager: CheckpointManager) -> list[int]:
    return [manager.stats(step).lossy_restores for step in manager]


def test_lossy_restores_are_counted_along_the_line(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, full_every=8) as manager:
        for step in range(4):
            manager.save(step, TREES[step])
        manager.restore(1, rewind=True)  # lossy: its residual is gone
        manager.save(2, TREES[2])
        manager.restore(rewind=True)  # exact
        manager.save(3, TREES[3])
        manager.restore(0, rewind=False)  # a look back
        manager.save(4, TREES[4])
        assert restores(manager) == [0, 0, 1, 1, 1]
    # A new process: it resumes from what it restores first, exactly or not.
    for step, residual in ((5, True), (6, False)):
        with CheckpointManager(tmp_path, full_every=8) as manager:
            manager.restore(residual=residual)
            manager.save(step, TREES[step])
            manager.restore(residual=False)
    manager = CheckpointManager(tmp_path, full_every=8)
    assert restores(manager) == [0, 0, 1, 1, 1, 1, 2]
    # A full snapshot begins anew.
    manager.save(7, TREES[7])
    manager.save(8, TREES[8])
    assert [manager.stats(step).kind for step in (7, 8)] == ["delta", "full"]
    manager.save(9, TREES[9])
    assert restores(manager)[-3:] == [2, 0, 0]


def test_a_restore_beyond_the_budget_warns(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, loss_budget=1, full_every=50)
    for step in range(3):
        manager.save(step, TREES[step])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manager.restore(1, rewind=True)
    manager.save(2, TREES[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manager.restore()
    with pytest.warns(ckptz.CkptzWarning, match="step 2: 2 lossy restores on its line"):
        manager.restore(2, residual=False)
    with pytest.warns(ckptz.CkptzWarning, match="the budget is 0; saving a full snapshot"):
        CheckpointManager(tmp_path, readonly=True, loss_budget=0).restore()


@pytest.mark.filterwarnings("error")
def test_what_is_exact_costs_nothing(tmp_path: Path) -> None:
    rule = ckptz.Rule(mode="exact", base="unpredicted")
    manager = CheckpointManager(tmp_path, rule, loss_budget=0)
    for step in range(5):
        manager.save(step, TREES[step])
        manager.restore(max(0, step - 1))
        manager.restore(step, residual=False, rewind=True)
    assert restores(manager) == [0] * 5
    # Files that have nothing to tell are read by readers of revision 0.
    for path in stores.snapshot_files(tmp_path):
        assert path.read_bytes()[10:16] == bytes(6)


def test_a_failed_save_leaves_the_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = CheckpointManager(tmp_path)
    for step in range(3):
        manager.save(step, TREES[step])
    manager.restore(1, rewind=True)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", refuse)
        with pytest.raises(OSError, match="Input/output"):
            manager.save(2, TREES[2])
    manager.save(2, TREES[2])
    assert restores(manager) == [0, 0, 1]


def refuse(*_: object) -> None:
    raise OSError(5, "Input/output error")


# --- Every so many saves --------------------------------------------------------------------------


def two(step: int) -> dict[str, Any]:
    return {"often": stores.weights(step), "seldom": stores.weights(100 + step), "n": step}


def ages(manager: CheckpointManager) -> list[int]:
    return [manager.stats(step).tensors["seldom"].age for step in manager]


@pytest.mark.parametrize("mode", ["exact", "lossy"])
def test_a_tensor_that_is_saved_every_third_time(tmp_path: Path, mode: Any) -> None:
    policy = Policy([Rule("seldom", mode=mode, every=3), Rule("*", mode=mode)])
    bases = {}
    with CheckpointManager(tmp_path, policy, full_every=8) as manager:
        for step in range(5):
            manager.save(step, two(step))
            bases[step] = stores.base_of(manager)
            # The newest is exact all the same.
            assert stores.digest(manager.restore()) == stores.digest(two(step))
    with CheckpointManager(tmp_path, full_every=8) as manager:
        assert manager.policy == policy
        for step in range(5, 11):
            manager.save(step, two(step))
            bases[step] = stores.base_of(manager)
            assert stores.digest(stores.fresh(tmp_path)) == stores.digest(two(step))
        # Full at 0 and 8; a full one has all.
        assert ages(manager) == [0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 2]
        for step in range(11):
            found = manager.restore(step, residual=False)
            assert stores.arrays_of(found) == bases[step]
            then = step - ages(manager)[step]
            if mode == "exact":
                assert found["seldom"].tobytes() == two(then)["seldom"].tobytes()
                assert found["often"].tobytes() == two(step)["often"].tobytes()
            assert found["n"] == step
        assert manager.stats(1).tensors["seldom"].bytes == 1
        assert not manager.stats(1).exact
        assert manager.stats(10).exact
        assert manager.verify().ok


def test_a_change_of_shape_is_saved_at_once(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, Policy([Rule("*", mode="exact", every=100)]))
    manager.save(0, {"a": np.arange(5.0), "b": np.arange(3)})
    manager.save(1, {"b": np.arange(3) + 1, "a": np.arange(6.0), "c": np.ones(4)})
    found = manager.restore(1, residual=False)
    assert found["a"].tolist() == list(range(6))
    assert found["c"].tolist() == [1] * 4
    assert found["b"].tolist() == [0, 1, 2]
    assert {path: t.age for path, t in manager.stats(1).tensors.items()} == {"b": 1, "a": 0, "c": 0}
    manager.save(2, {"a": np.arange(6.0) + 1, "b": np.arange(3) + 2})
    assert {path: t.age for path, t in manager.stats(2).tensors.items()} == {"a": 1, "b": 2}


@pytest.mark.parametrize("every", [0, -1, 1.0, True, None])
def test_what_is_no_number_of_saves(every: Any) -> None:
    with pytest.raises(ckptz.PolicyError, match="every="):
        Rule("*", every=every)


def test_resuming_from_what_is_stale_counts_as_lossy(tmp_path: Path) -> None:
    with CheckpointManager(
        tmp_path, Policy([Rule("*", mode="exact", every=2)]), exact="none"
    ) as manager:
        manager.save(0, small(0))
        manager.save(1, small(1))
    with CheckpointManager(tmp_path, exact="none") as manager:
        manager.restore()
        manager.save(2, small(2))
        assert restores(manager) == [0, 0, 1]


def test_a_tensor_with_two_paths_is_saved_as_often_as_any_asks(tmp_path: Path) -> None:
    policy = ckptz.Policy([ckptz.Rule("a", every=3), ckptz.Rule("tied", mode="exact")])
    manager = CheckpointManager(tmp_path, policy)
    for step in range(3):
        array = np.arange(50, dtype="f4") + step
        manager.save(step, {"a": array, "tied": array})
        assert manager.restore(step, residual=False)["tied"].tobytes() == array.tobytes()
