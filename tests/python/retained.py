"""Stores whose steps come and go, for the tests of retention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import stores
from ckptz import CheckpointManager

__all__ = ["TREES", "check", "train"]

TREES = list(stores.training(24))


def train(path: Path, steps: int, **options: Any) -> tuple[CheckpointManager, dict[int, Any]]:
    """Manager of a store with some steps, and what its reconstructions are."""
    manager = CheckpointManager(path, **options)
    bases = {}
    for step in range(steps):
        manager.save(step, TREES[step])
        bases[step] = stores.base_of(manager)
    return manager, bases


def check(manager: CheckpointManager, bases: dict[int, Any], steps: list[int]) -> None:
    """Check that there are these steps, here and for fresh readers, with the right content."""
    for one in (manager, CheckpointManager(manager.path, readonly=True)):
        assert one.all_steps() == steps
        for step in steps:
            assert stores.arrays_of(one.restore(step, residual=False)) == bases[step]
        assert one.verify().problems == []
