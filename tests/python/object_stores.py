"""A store in a bucket, for the tests of object stores."""

from __future__ import annotations

from typing import Any

import stores
from ckptz import CheckpointManager
from fake_objects import Bucket
from trees import assert_same

__all__ = ["TREES", "URL", "begun", "check", "kinds"]

URL = "s3://bucket/run"
TREES = list(stores.training(12))


def begun(steps: int = 3, **options: Any) -> CheckpointManager:
    manager = CheckpointManager(URL, **options)
    for step in range(steps):
        manager.save(step, TREES[step])
    return manager


def check(*steps: int) -> None:
    """What a fresh reader finds: these steps, the newest as it was saved."""
    reader = CheckpointManager(URL, readonly=True)
    assert reader.all_steps() == list(steps)
    assert reader.verify().ok
    assert_same(reader.restore(), TREES[steps[-1]])


def kinds(bucket: Bucket) -> list[str]:
    return sorted(name.split(".", 1)[1] if name[0] != "c" else "commit" for name in bucket.names())
