"""Helpers for the tests of what people ran into."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import stores
from trees import assert_same


def through_everything(tree: object, **options: Any) -> None:
    """Take a state through a file, a full snapshot, and deltas; it must come back in every bit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        before = stores.arrays_of(tree)
        ckptz.save_file(tree, path / "one.ckptz")
        assert_same(ckptz.load_file(path / "one.ckptz", **options), tree)
        for policy in ("lossy", "exact", "paper:3"):
            with ckptz.CheckpointManager(path / policy, policy) as manager:
                manager.save(0, tree)
                assert_same(manager.restore(**options), tree)
                manager.save(1, {"other": np.zeros(3)})
                manager.save(2, tree)
                manager.save(3, tree)
                for step in (0, 2, 3):
                    assert_same(manager.restore(step, **options), tree)
                assert manager.verify().ok
        assert stores.arrays_of(tree) == before


def lossily(first: Any, second: Any, policy: str = "lossy") -> tuple[Any, dict[str, Any]]:
    """Save two states under the key `w`; return the second as reconstructed, and the record."""
    folder = tempfile.TemporaryDirectory()
    with folder, ckptz.CheckpointManager(folder.name, policy) as manager:
        manager.save(0, {"w": first})
        manager.save(1, {"w": second})
        assert_same(manager.restore()["w"], second)
        return manager.restore(residual=False)["w"], stores.representatives(manager, 1)["w"]
