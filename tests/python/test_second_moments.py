"""Tensors that are nowhere negative come back in the right order of magnitude."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("rule", [ckptz.Rule(), ckptz.Rule(levels=7)])
def test_a_jump_is_exact_also_where_siblings_said_something(tmp_path: Path, rule: Any) -> None:
    """Entries that were frozen get gradients: what the first moment tells of the second is off."""
    rng = np.random.default_rng(4)
    n = 20_000
    size = np.exp(2 * rng.normal(size=n)).astype(np.float32)
    frozen = rng.random(n) < 0.3
    w, m, v = (np.zeros(n, np.float32) for _ in range(3))
    one = np.float32
    manager = ckptz.CheckpointManager(tmp_path, rule, exact="none")
    for step in range(54):
        g = rng.normal(size=n).astype(np.float32) * one(1e-2) * size
        if step < 53:
            g[frozen] = 0
        m = one(0.9) * m + one(0.1) * g
        v = one(0.99) * v + one(0.01) * g * g
        w = w - one(1e-3) * m / (np.sqrt(v) + one(1e-8))
        if step >= 50:
            manager.save(step, {"w": w, "m": m, "v": v})
    assert manager.stats(52).tensors["v"].base == "predicted"
    assert manager.restore(53)["v"].tobytes() == v.tobytes()
