"""A state whose zeros become fewer and longer runs between its plan and its coding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
from ckptz import Rule, StateChangedError

N = 200_000
RULES = {
    "lossy": Rule("b", mode="lossy", levels=7, domain="value"),
    "exact": Rule("b", mode="exact"),
}


def sizes(rng: np.random.Generator, count: int) -> Any:
    """Seven exponents, both signs."""
    return np.exp2(1.0 - rng.geometric(0.5, count).clip(1, 7)) * rng.choice([-1, 1], count)


def contents(rng: np.random.Generator, share: float) -> tuple[Any, Any, Any]:
    """A base; what differs in this share of the entries; and what differs in one of 201."""
    base = (rng.standard_normal(N) * 1e-3).astype("f4")
    dense, sparse = base.copy(), base.copy()
    chosen = rng.random(N) < share
    dense[chosen] += sizes(rng, int(chosen.sum())).astype("f4")
    # Every run has 128 zeros and more, also at the start of a chunk.
    sparse[201::201] += sizes(rng, sparse[201::201].size).astype("f4")
    return base, dense, sparse


@pytest.mark.parametrize("mode", RULES)
@pytest.mark.parametrize("exact", ["none", "latest"])
@pytest.mark.parametrize("share", [0.1, 0.15, 0.2, 0.3])
def test_long_runs_are_not_taken_for_short_ones(
    tmp_path: Path, mode: str, exact: Any, share: float
) -> None:
    """Two threads plan the next tensors at once; `progress` comes when the second is planned."""
    rng = np.random.default_rng(0)
    base, dense, sparse = contents(rng, share)
    large = rng.integers(0, 2**32, 1 << 22, np.uint32).view("f4")
    policy = ckptz.Policy([Rule("a", mode="exact"), RULES[mode]])
    state = {"a": large[::-1].copy(), "b": dense.copy()}
    calls: list[int] = []

    def change(written: int) -> None:
        if not calls:
            state["b"][:] = sparse
        calls.append(written)

    def save(manager: ckptz.CheckpointManager, progress: Callable[[int], None]) -> bool:
        try:
            manager.save(1, state, progress=progress)
        except StateChangedError:
            return False
        return True

    with ckptz.CheckpointManager(tmp_path, policy, threads=2, exact=exact) as manager:
        manager.save(0, {"a": large, "b": base})
        if save(manager, change):
            for residual in (True, False):
                manager.restore(1, residual=residual)
            if mode == "exact":
                assert np.array_equal(manager.restore(1)["b"], sparse)
        assert calls
        assert manager.verify().ok
        manager.save(2, {"a": large, "b": sparse})
        assert manager.verify().ok
