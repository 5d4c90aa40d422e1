"""The coding of pairs: of large lossy tensors only, and the file's header says so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ckptz
import fake_objects
import numpy as np
import pytest
import stores
from ckptz import codec

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import read_ckptz

LARGE = 1 << 18
State = dict[str, np.ndarray[Any, Any]]


def states(size: int, steps: int = 3) -> list[State]:
    """A run of one tensor, the symbols of which are such that pairs pay."""
    rng = np.random.default_rng(size)
    weight = rng.normal(0, 0.02, size).astype("f4")
    found = []
    for _ in range(steps):
        found.append({"weight": weight})
        weight = weight + np.float32(1e-4) * rng.standard_normal(size, "f4")
    return found


def save_all(folder: Path, run: list[State], policy: Any = "lossy") -> None:
    with ckptz.CheckpointManager(folder, policy, exact="none") as manager:
        for step, state in enumerate(run):
            manager.save(step, state)


def headers(folder: Path) -> list[tuple[int, int]]:
    return [stores.header_of(path) for path in sorted(folder.glob("*.ckptz"))]


@pytest.mark.parametrize("threads", [1, 2])
def test_large_tensors_come_back(tmp_path: Path, threads: int) -> None:
    run = states(LARGE + 4321)
    with ckptz.CheckpointManager(tmp_path, exact="latest", threads=threads) as manager:
        for step, state in enumerate(run):
            manager.save(step, state)
        assert manager.stats(1).tensors["weight"].coding == "pairs"
        latest = manager.restore()["weight"]
        assert latest.tobytes() == run[-1]["weight"].tobytes()
        lossy = manager.restore(1)["weight"]
        assert not np.array_equal(lossy, run[0]["weight"])
        assert np.abs(lossy - run[1]["weight"]).max() < 2e-3
        plain = read_ckptz.Store(str(tmp_path)).restore(1, residual=False)["weight"]
        assert np.asarray(plain).tobytes() == lossy.tobytes()
        assert manager.verify().ok


def test_only_files_that_may_have_pairs_say_so(tmp_path: Path) -> None:
    save_all(tmp_path / "large", states(LARGE))
    save_all(tmp_path / "small", states(LARGE - 1))
    save_all(tmp_path / "exact", states(LARGE), "exact")
    save_all(tmp_path / "paper", states(LARGE), ckptz.Policy.paper())
    assert headers(tmp_path / "large") == [(0, 0), (2, 16), (2, 16)]
    assert {
        features & 16
        for name in ("small", "exact", "paper")
        for _, features in headers(tmp_path / name)
    } == {0}


def test_a_file_that_does_not_say_so_is_refused(tmp_path: Path) -> None:
    save_all(tmp_path, states(LARGE, steps=2))
    stores.strip_features(sorted(tmp_path.glob("*.ckptz"))[1])
    with pytest.raises(ckptz.FormatError, match="feature bit"):
        ckptz.CheckpointManager(tmp_path, readonly=True).restore(1)
    with pytest.raises(read_ckptz.FormatError, match="feature bit"):
        read_ckptz.Store(str(tmp_path)).restore(1)


def test_merged_files_keep_saying_so(tmp_path: Path) -> None:
    run = states(LARGE, steps=5)
    with ckptz.CheckpointManager(tmp_path, exact="none") as manager:
        for step, state in enumerate(run):
            manager.save(step, state)
        before = [manager.restore(step)["weight"].tobytes() for step in range(5)]
        manager.merge([1, 3])
        assert [manager.restore(step)["weight"].tobytes() for step in range(5)] == before
        assert (2, 17) in headers(tmp_path)


def test_parts_of_several_writers_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = fake_objects.install(monkeypatch).bucket()
    with ckptz.CheckpointManager("s3://bucket/run", exact="none") as manager:
        for step, state in enumerate(states(LARGE)):
            manager.save(step, state)
        restored = manager.restore(1)["weight"]
        assert manager.stats(1).tensors["weight"].coding == "pairs"
    # The delta's part, and its commit, which holds no records.
    found = {(data[10], data[12]) for data in bucket.objects.values()}
    assert {(2, 16 + 4), (0, 4)} <= found
    assert restored.size == LARGE


def test_the_default_takes_pairs_where_they_cost_little() -> None:
    first, second = states(LARGE, steps=2)
    rules = {coding: ckptz.Rule(mode="lossy", coding=coding) for coding in ("auto", "plain")}
    sizes = {
        k: len(codec.encode(second["weight"], first["weight"].copy(), r)) for k, r in rules.items()
    }
    assert 0.9 < sizes["auto"] / sizes["plain"] < 0.99
