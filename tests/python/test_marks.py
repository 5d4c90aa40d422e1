"""Marks that are damaged: they say of their snapshots what they said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ckptz
import pytest
import stores
from ckptz import CheckpointManager

TREES = list(stores.training(6))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Steps 0, 2, 3; step 1 is dropped, for others need it, and step 2 is pinned."""
    with CheckpointManager(tmp_path) as manager:
        for step in range(4):
            manager.save(step, TREES[step])
            if step == 2:
                manager.pin()
        manager.delete(1)
    assert len(list(tmp_path.glob("*.pin"))) == len(list(tmp_path.glob("*.hidden"))) == 1
    return tmp_path


def damaged(path: Path) -> Iterator[str]:
    """Flip every bit of a file in turn, and cut it to every length."""
    good = path.read_bytes()
    for bit in range(8 * len(good)):
        changed = bytearray(good)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        yield f"bit {bit}"
    for length in range(len(good)):
        path.write_bytes(good[:length])
        yield f"cut to {length}"
    path.write_bytes(good)


@pytest.mark.parametrize("kind", ["pin", "hidden"])
def test_a_damaged_mark_holds_and_is_told_of(store: Path, kind: str) -> None:
    """One flipped bit makes of the id in it another one that looks as good."""
    mark = next(store.glob(f"*.{kind}"))
    assert CheckpointManager(store).verify().ok
    for how in damaged(mark):
        manager = CheckpointManager(store, readonly=True, threads=1)
        assert manager.all_steps() == [0, 2, 3], how
        assert manager.pinned_steps() == [2], how
        problems = manager.verify().problems
        assert [problem.file for problem in problems] == [mark.name], how
        assert f"{mark}: offset 0: not the id of the snapshot" in problems[0].what
    assert CheckpointManager(store).verify().ok


def test_what_a_damaged_mark_holds_is_not_collected(store: Path) -> None:
    for mark in (*store.glob("*.pin"), *store.glob("*.hidden")):
        content = mark.read_bytes()
        mark.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with CheckpointManager(store, max_to_keep=1) as manager:
        assert manager.gc().kept == [2, 3]
        assert stores.digest(manager.restore(2)) == stores.digest(TREES[2])
        manager.save(4, TREES[4])
        assert manager.all_steps() == [2, 4]
        manager.unpin(2)
        manager.gc()
        assert manager.all_steps() == [4]
    assert not list(store.glob("*.pin"))


def test_a_renamed_mark_holds_by_its_content(store: Path) -> None:
    for mark in (*store.glob("*.pin"), *store.glob("*.hidden")):
        mark.rename(mark.with_name(f"renamed{mark.suffix}"))
    manager = ckptz.CheckpointManager(store)
    assert manager.all_steps() == [0, 2, 3]
    assert manager.pinned_steps() == [2]
    assert manager.verify().ok
