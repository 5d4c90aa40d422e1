"""Pinned steps stay, and stay exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ckptz
import pytest
import stores
from ckptz import CheckpointManager
from retained import TREES, train
from stores import saved


@pytest.mark.filterwarnings("error")
def test_a_pinned_step_stays_and_stays_exact(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, max_to_keep=1, full_every=4)
    for step in range(16):
        manager.save(step, TREES[step])
        if step in (2, 7):
            manager.pin()
            manager.pin(step)
    assert manager.all_steps() == [2, 7, 15]
    assert manager.pinned_steps() == [2, 7]
    reader = CheckpointManager(tmp_path, readonly=True)
    for step in (2, 7, 15):
        assert stores.digest(reader.restore(step)) == stores.digest(TREES[step])
        assert reader.stats(step).exact
    assert reader.stats(7).pinned
    with pytest.raises(ValueError, match="step 7 is pinned; unpin it first"):
        manager.delete(7)
    manager.unpin(7)
    manager.save(16, TREES[16])
    assert manager.all_steps() == [2, 16]
    assert CheckpointManager(tmp_path).pinned_steps() == [2]
    manager.unpin(2)
    manager.gc()
    assert manager.all_steps() == [16]
    assert not list(tmp_path.glob("*.pin"))


@pytest.mark.parametrize("full_every", [1, 50])
@pytest.mark.parametrize("crash", [False, True])
def test_a_pin_is_of_the_step_whatever_is_saved_as_it(
    tmp_path: Path, full_every: int, crash: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"max_to_keep": 2, "full_every": full_every}
    manager = CheckpointManager(tmp_path, **options)
    manager.save(1, TREES[1])
    manager.pin(1)
    with monkeypatch.context() as patch:
        if crash:  # .. right after the commit
            patch.setattr("ckptz.keeping.Keeper.after_save", lambda *_: None)
        manager.save(1, TREES[2], overwrite=True)
        manager.close()
    manager = CheckpointManager(tmp_path, **options)
    for step in range(3, 8):
        manager.save(step, TREES[step])
        manager.gc()
        assert manager.all_steps() == sorted({1, max(3, step - 1), step})
        assert stores.digest(stores.fresh(tmp_path, step=1)) == stores.digest(TREES[2])
        assert manager.pinned_steps() == [1]
    if not crash:
        assert len(list(tmp_path.glob("*.pin"))) == 1
    manager.unpin(1)
    assert manager.gc().dropped == [1]
    assert not list(tmp_path.glob("*.pin"))
    assert manager.all_steps() == CheckpointManager(tmp_path).all_steps() == [6, 7]


def test_a_pin_outlives_a_rewind(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 6, full_every=50)
    manager.pin(5)
    manager.restore(2, rewind=True)
    manager.save(3, TREES[9])
    manager.gc()
    assert manager.all_steps() == [0, 1, 2, 3]
    # It is off the line now; its file is there still, and what it needs.
    assert len(stores.snapshot_files(tmp_path)) == 7
    assert manager.verify().snapshots == 7


def test_pins_of_what_is_not_there(tmp_path: Path) -> None:
    manager = saved(tmp_path, 1)
    for use in (manager.pin, manager.unpin, manager.delete):
        with pytest.raises(ckptz.MissingSnapshotError, match="no snapshot of step 2"):
            use(2)
    empty = CheckpointManager(tmp_path / "empty")
    for call in (empty.pin, empty.gc, empty.merge):
        with pytest.raises(ckptz.MissingSnapshotError, match="there is no store"):
            call()
    assert not (tmp_path / "empty").exists()


def test_a_damaged_pin_still_holds_by_its_name(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 3, max_to_keep=1)
    manager.pin()
    pin = next(tmp_path.glob("*.pin"))
    pin.write_bytes(b"")
    manager.save(3, TREES[3])
    assert manager.all_steps() == [2, 3]
    pin.unlink()
    (tmp_path / "odd.pin").write_bytes(b"junk")
    with pytest.warns(ckptz.CkptzWarning, match="odd.pin: offset 0: not a mark"):
        manager.save(4, TREES[4])
    assert manager.all_steps() == [4]


def test_readers_and_other_writers_change_nothing(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 3)
    before = stores.files(tmp_path)
    reader = CheckpointManager(tmp_path, readonly=True, max_to_keep=1)
    assert reader.gc(dry_run=True).dropped == [0, 1]
    for use in (reader.pin, reader.gc, reader.merge, lambda: reader.delete(1)):
        with pytest.raises(ValueError, match="read-only"):
            use()
    other = CheckpointManager(tmp_path)
    for use in (other.pin, other.gc, other.merge, lambda: other.delete(1)):
        with pytest.raises(ckptz.StoreLockedError):
            use()
    assert stores.files(tmp_path) == before
    manager.close()
