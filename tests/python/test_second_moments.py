"""Tensors that are nowhere negative come back in the right order of magnitude."""

from __future__ import annotations

from pathlib import Path

import ckptz
import numpy as np
import pytest


def moments(seed: int) -> np.ndarray:
    """Second moments as an optimizer has them: their sizes differ by many octaves."""
    rng = np.random.default_rng(seed)
    return np.exp2(rng.normal(-25, 4, 40_000)).astype(np.float32)


def octaves_off(found: np.ndarray, target: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(np.log2(found) - np.log2(target)))))


@pytest.mark.parametrize("before", ["zero", "others"])
def test_a_jump_over_octaves_is_exact(tmp_path: Path, before: str) -> None:
    target = moments(1)
    manager = ckptz.CheckpointManager(tmp_path, exact="none")
    manager.save(0, {"nu": np.zeros_like(target) if before == "zero" else moments(2)})
    manager.save(1, {"nu": target})
    assert manager.restore(1)["nu"].tobytes() == target.tobytes()
    assert not manager.stats(1).tensors["nu"].lossy


def test_what_moves_less_is_lossy_and_close(tmp_path: Path) -> None:
    first = moments(1)
    decay = np.random.default_rng(3).uniform(0.9, 1.1, first.size).astype(np.float32)
    manager = ckptz.CheckpointManager(tmp_path, exact="none")
    for step in range(4):
        manager.save(step, {"nu": first * decay**step})
    assert manager.stats(3).tensors["nu"].lossy
    assert octaves_off(manager.restore(3)["nu"], first * decay**3) < 0.2


def test_a_rule_of_one_s_own_is_followed(tmp_path: Path) -> None:
    rule = ckptz.Rule(domain="value")
    manager = ckptz.CheckpointManager(tmp_path, rule, exact="none")
    manager.save(0, {"nu": np.zeros(40_000, np.float32)})
    manager.save(1, {"nu": moments(1)})
    assert manager.stats(1).tensors["nu"].lossy
