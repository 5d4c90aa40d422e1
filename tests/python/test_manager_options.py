"""Options of a manager: policies, full snapshots, residuals, threads."""

from __future__ import annotations

import importlib
import os
import warnings
from pathlib import Path

import ckptz
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager
from stores import small
from trees import assert_same


def test_options_that_cannot_be(tmp_path: Path) -> None:
    for options in (
        {"exact": "all"},
        {"full_every": -1},
        {"full_every": 1.5},
        {"full_every": True},
        {"threads": 0},
        {"threads": 2000},
        {"threads": 1.0},
    ):
        with pytest.raises(ValueError, match="is not"):
            CheckpointManager(tmp_path, **options)
    with pytest.raises(ckptz.PolicyError):
        CheckpointManager(tmp_path, "lossless")
    with pytest.raises(FileNotFoundError, match="there is no store to read"):
        CheckpointManager(tmp_path / "none", readonly=True)
    assert list(tmp_path.iterdir()) == []


def test_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from ckptz import codec

    monkeypatch.setenv("CKPTZ_NUM_THREADS", "3")
    assert codec.default_threads() == 3
    assert codec.default_threads(2) == 2
    monkeypatch.setenv("CKPTZ_NUM_THREADS", "many")
    assert codec.default_threads() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert codec.default_threads() == min(os.cpu_count() or 1, 1024)
    monkeypatch.setenv("CKPTZ_NUM_THREADS", "0")
    with pytest.raises(ValueError, match="threads=0"):
        codec.default_threads()


@pytest.mark.parametrize(
    ("full_every", "kinds"), [(0, "fddddd"), (1, "ffffff"), (2, "fdfdfd"), (4, "fdddfd")]
)
def test_full_snapshots(tmp_path: Path, full_every: int, kinds: str) -> None:
    with CheckpointManager(tmp_path, full_every=full_every) as manager:
        for step in range(len(kinds)):
            manager.save(step, small(step))
            found = manager.stats(step)
            assert found.kind[0] == kinds[step]
            assert found.restore_files <= (full_every or 99) + 1
            if step == 2:
                # The count goes on where a store is opened again.
                manager.close()
                manager = CheckpointManager(tmp_path, full_every=full_every)
        manager.close()


def test_exactness_of_the_newest(tmp_path: Path) -> None:
    trees = list(stores.training(4))
    latest = CheckpointManager(tmp_path / "latest")
    none = CheckpointManager(tmp_path / "none", exact="none")
    for step, tree in enumerate(trees):
        latest.save(step, tree)
        none.save(step, tree)
        assert_same(latest.restore(), tree)
        assert stores.arrays_of(none.restore()) == stores.base_of(none)
        assert len(list((tmp_path / "latest").glob("*.residual.ckptz"))) == (step > 0)
        assert len(list((tmp_path / "none").glob("*.residual.ckptz"))) == 0
    assert stores.digest(none.restore()) != stores.digest(trees[-1])
    # The history is what it is without residuals.
    for step in range(3):
        assert_same(latest.restore(step), none.restore(step))


def test_without_residuals_the_old_ones_go(tmp_path: Path) -> None:
    trees = list(stores.training(4))
    for step, exact in enumerate(["latest", "latest", "none", "latest"]):
        with CheckpointManager(tmp_path, exact=exact) as manager:  # type: ignore[arg-type]
            manager.save(step, trees[step])
        names = [path.name[:10] for path in tmp_path.glob("*.residual.ckptz")]
        assert names == ([f"{step:010d}"] if step in (1, 3) else [])


def test_a_store_remembers_its_policy(tmp_path: Path) -> None:
    assert CheckpointManager(tmp_path).policy == ckptz.Policy.lossy()
    rules = [ckptz.Rule("w", mode="lossy", levels=5), ckptz.Rule("*", mode="exact")]
    with CheckpointManager(tmp_path, rules) as manager:
        manager.save(0, small())
        manager.save(1, small(1))
    with CheckpointManager(tmp_path) as manager:
        assert manager.policy == ckptz.Policy(rules)
        manager.save(2, small(2))
    with CheckpointManager(tmp_path, "exact") as manager:
        assert manager.policy == ckptz.Policy.exact()
    # Only looking at it changes nothing; a save records it.
    with CheckpointManager(tmp_path) as manager:
        assert manager.policy == ckptz.Policy(rules)
    with CheckpointManager(tmp_path, "exact") as manager:
        manager.save(3, small(3))
    with CheckpointManager(tmp_path) as manager:
        assert manager.policy == ckptz.Policy.exact()
        manager.restore(2, rewind=True)
        manager.save(3, small(33))
        assert manager.policy == ckptz.Policy.exact()
        assert manager.stats(3).tensors["w"].lossy is False


def test_a_rule_that_matches_nothing_warns_once(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, [ckptz.Rule("typo/*"), ckptz.Rule("*")])
    with pytest.warns(ckptz.CkptzWarning, match="rule 'typo/\\*' matches no tensor") as found:
        manager.save(0, small())
    assert len(found) == 1
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manager.save(1, small(1))
        manager.save(2, {"other": np.ones(9)})


def test_a_rule_for_all_the_rest_may_match_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with CheckpointManager(tmp_path, [ckptz.Rule("w"), ckptz.Rule("*")]) as manager:
            manager.save(0, small())
        with CheckpointManager(tmp_path / "plain") as manager:
            manager.save(0, {"n": 1})
        with CheckpointManager(tmp_path / "typo", ckptz.Rule("typo")) as manager:
            manager.save(0, {"n": 1})
            with pytest.raises(ckptz.CkptzWarning, match="typo"):
                manager.save(1, small())


def test_warnings_as_errors_break_nothing(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, [ckptz.Rule("typo/*"), ckptz.Rule("*")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ckptz.CkptzWarning):
            manager.save(0, small())
        manager.save(0, small())
    assert_same(manager.restore(), small())


def test_a_system_without_file_locks_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        with pytest.raises(ImportError, match="file locks of Linux or macOS"):
            importlib.reload(ckptz.storage)
