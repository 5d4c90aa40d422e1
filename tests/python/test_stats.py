"""`stats`: what a step takes and what its headers say, checked against the files themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager
from ckptz.file import SNAPSHOT, FileWriter, Pieces

TREES = list(stores.training(6))


@pytest.fixture
def manager(tmp_path: Path) -> CheckpointManager:
    manager = CheckpointManager(tmp_path, full_every=4)
    for step, tree in enumerate(TREES):
        manager.save(step, tree)
    return manager


def test_sizes_are_those_of_the_files(manager: CheckpointManager, tmp_path: Path) -> None:
    files = [path.stat().st_size for path in stores.snapshot_files(tmp_path)]
    residual = next(tmp_path.glob("*.residual.ckptz")).stat().st_size
    parents = [None, 0, 1, 2, None, 4]
    chains = [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [4], [4, 5]]
    for step, chain in enumerate(chains):
        stats = manager.stats(step)
        assert stats.step == step
        assert stats.bytes == files[step]
        assert stats.kind == ("full" if step in (0, 4) else "delta")
        assert stats.parent == parents[step]
        assert stats.residual_bytes == (residual if step == 5 else 0)
        assert stats.restore_files == len(chain) + (step == 5)
        assert stats.restore_bytes == sum(files[s] for s in chain) + stats.residual_bytes
        assert stats.exact == (step in (0, 4, 5))
        assert stats.finite
        assert stats.raw_bytes == 4 * 400 * 3 + 8 * 400
        assert stats.ratio == pytest.approx(stats.raw_bytes / files[step])
        # Payloads, headers and the rest make up the file.
        tensors = stats.tensors.values()
        assert stats.bytes - sum(t.bytes - t.header_bytes for t in tensors) > 40
        assert sum(t.bytes for t in tensors) < stats.bytes + 40
    assert manager.stats() == manager.stats(5)
    assert bytes.fromhex(manager.stats(2).id) in manager._store.entries


def test_when_it_was_saved(tmp_path: Path) -> None:
    with stores.clock():
        manager = stores.saved(tmp_path, 3, 5)
    assert manager.stats(3).created == pytest.approx(1_700_000_000, abs=1)
    assert manager.stats(5).created > manager.stats(3).created


def test_what_is_said_of_each_tensor(manager: CheckpointManager) -> None:
    found = manager.stats(3).tensors
    assert list(found) == [
        "model/weight",
        "model/table",
        "optimizer/exp_avg",
        "optimizer/exp_avg_sq",
    ]
    weight, table, _, second = found.values()
    assert (weight.dtype, weight.shape, weight.raw_bytes) == ("float32", (50, 8), 1600)
    assert (weight.kind, weight.base, weight.lossy) == ("value", "predicted", True)
    assert weight.siblings == ("optimizer/exp_avg",)
    assert weight.coding in ("plain", "pairs", "mask", "tokens", "fixed")
    assert second.kind == "ordered non-negative"
    assert (table.kind, table.bytes, table.coding, table.error) == ("same", 1, None, 0.0)
    assert table.ratio == 3200
    assert 0 < weight.table_bytes < weight.header_bytes < weight.bytes


def test_the_error_is_what_comes_of_it(manager: CheckpointManager) -> None:
    for step in (1, 2, 3):
        before = manager.restore(step - 1, residual=False)["model"]["weight"].astype("f8")
        after = manager.restore(step, residual=False)["model"]["weight"].astype("f8")
        target = TREES[step]["model"]["weight"].astype("f8")
        error = np.linalg.norm(after - target) / np.linalg.norm(target - before)
        stats = manager.stats(step)
        assert stats.tensors["model/weight"].error == pytest.approx(error, rel=5e-3)
        assert stats.error == max(tensor.error for tensor in stats.tensors.values())


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path) as manager:
        for step, value in enumerate([0.0, np.nan, np.inf, 1.0]):
            array = stores.weights(step)
            array[3, 3] = value
            manager.save(step, {"w": array, "i": np.arange(3)})
        assert [manager.stats(step).finite for step in range(4)] == [True, False, False, True]


def test_an_exact_delta_is_exact_without_a_residual(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, "exact") as manager:
        for step in range(3):
            manager.save(step, TREES[step])
            assert manager.stats(step).exact
            assert manager.stats(step).residual_bytes == 0


def test_a_state_without_tensors(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path) as manager:
        manager.save(0, {"n": 1})
        stats = manager.stats()
        assert (stats.tensors, stats.raw_bytes, stats.error, stats.exact) == ({}, 0, 0.0, True)


def test_links_name_their_source(tmp_path: Path) -> None:
    array = stores.weights(0)
    with CheckpointManager(tmp_path) as manager:
        manager.save(0, {"a": array, "b": array.copy(), "c": array})
        found = manager.stats().tensors
    assert found["b"].link == "a"
    assert found["a"].link is None
    assert "c" not in found  # the very same memory: one tensor


def test_a_damaged_header_is_a_typed_error(manager: CheckpointManager) -> None:
    entry = manager._store.at(3)[0]
    stored = manager._store.stored(entry)
    pieces = Pieces()
    file = FileWriter(pieces, SNAPSHOT)
    file.finish(stored.meta.encode(), b"\xff" + stored.headers[1:], None)
    (Path(manager.path) / entry.name).write_bytes(b"".join(pieces))
    manager.reload()
    with pytest.raises(ckptz.FormatError, match=entry.name):
        manager.stats(3)


@pytest.mark.filterwarnings("ignore:step .* not finite")
@pytest.mark.parametrize("shape", [(), (64,), (70_000,), (2, 100_000)])
def test_what_stays_as_it_is_and_is_not_finite_is_told(tmp_path: Path, shape: Any) -> None:
    manager = ckptz.CheckpointManager(tmp_path, max_to_keep=2)
    w = np.zeros(shape, "f4")
    for step in range(7):
        w = w + np.asarray(0.1, "f4") if step < 3 else np.full(shape, np.nan, "f4")
        manager.save(step, {"w": w})
    assert manager.all_steps() == [2, 5, 6]
    assert [manager.stats(step).finite for step in manager] == [True, False, False]
