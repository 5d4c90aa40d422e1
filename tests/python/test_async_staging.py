"""The copies that saves in the background work from."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stores
from background_tools import LONG, gate
from ckptz import CheckpointManager
from stores import small
from trees import assert_same


@pytest.mark.parametrize("blocking", [False, True])
def test_a_second_save_waits_and_does_not_touch_what_is_staged(
    tmp_path: Path, blocking: bool
) -> None:
    manager = CheckpointManager(tmp_path)
    manager.save(0, small(0), blocking=False).wait()
    with gate() as held:
        manager.save(1, small(1), blocking=False)
        held.reached()
        second = threading.Thread(target=lambda: manager.save(2, small(2), blocking=blocking))
        second.start()
        second.join(0.2)
        assert second.is_alive()
        assert manager._saver._staging._rooms[0][0] == 1
        held.open()
        second.join(LONG)
    manager.wait(LONG)
    assert [manager.restore(step)["n"] for step in manager] == [0, 1, 2]


def test_what_has_not_changed_is_not_staged_again(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    staging = manager._saver._staging
    tree = {
        "frozen": stores.weights(0, (3 << 18,)),
        "trained": stores.weights(1),
        "same": np.full(9, np.nan),
        "few rows": stores.weights(2, (5 << 18,)),
    }
    total = sum(array.nbytes for array in tree.values())
    written, rooms = [], []
    for step in range(4):
        manager.save(step, tree, blocking=False).wait()
        written.append(staging.written)
        rooms.append([array.ctypes.data for array in staging._rooms])
        tree["trained"] += 1
        if step == 1:
            tree["few rows"][1 << 18] += 1
    few = tree["trained"].nbytes
    assert written == [total, few, few + (1 << 20), few]
    assert rooms == [rooms[0]] * 4
    tree["trained"] = manager.restore(3)["trained"]
    assert_same(manager.restore(3), tree)


def test_buffers_follow_the_state(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    staging = manager._saver._staging
    trees: list[dict[str, Any]] = [
        {"a": np.zeros(5), "b": np.ones(5), "c": np.ones(6)},
        {"b": np.ones(5), "new": np.full((5, 1), 2.0), "a": np.zeros(5)},
        {"b": np.ones(5, "f4")},
        {},
        {"a": np.arange(3)},
    ]
    kept = []
    for step, tree in enumerate(trees):
        kept.append({array.ctypes.data for array in staging._rooms})
        manager.save(step, tree, blocking=False).wait()
        kept[-1] &= {array.ctypes.data for array in staging._rooms}
    assert len(kept[1]) == 2
    for step, tree in enumerate(trees):
        assert_same(manager.restore(step), tree)
    manager.close()
    assert staging._rooms == []


def test_the_caller_s_state_is_let_go_of(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    tree = small(0)
    watched = weakref.ref(tree["w"])
    with gate() as held:
        manager.save(0, tree, blocking=False)
        held.reached()
        del tree
        assert watched() is None
