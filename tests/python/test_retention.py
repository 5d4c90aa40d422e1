"""Deleting and collecting: what no step needs goes, and nothing that one needs."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import ckptz
import pytest
import stores
from ckptz import CheckpointManager
from retained import TREES, check, train
from stores import saved, small


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("full_every", [1, 3, 50])
@pytest.mark.parametrize("victim", range(7))
def test_deleting_any_step(tmp_path: Path, full_every: int, victim: int) -> None:
    manager, bases = train(tmp_path, 7, full_every=full_every)
    manager.delete(victim)
    left = [step for step in range(7) if step != victim]
    check(manager, bases, left)
    with pytest.raises(ckptz.MissingSnapshotError):
        manager.restore(victim)
    needed = victim < 6 and full_every > 1 and (victim + 1) % full_every != 0
    there = bool(list(tmp_path.glob(f"{victim:010d}-????????????????.ckptz")))
    assert there == needed
    manager.save(7, TREES[7])
    assert stores.arrays_of(manager.restore(7, residual=False)) == stores.base_of(manager)
    assert manager.all_steps() == [*left, 7]


def test_deleting_all_steps(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 4)
    for step in (2, 0, 3, 1):
        manager.delete(step)
    assert manager.all_steps() == []
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    manager.save(0, TREES[0])
    assert manager.all_steps() == [0]


def test_deleting_the_newest_does_not_bring_back_what_was_left_behind(tmp_path: Path) -> None:
    manager = saved(tmp_path, *range(6))
    manager.restore(2, rewind=True)
    manager.save(3, small(30))
    manager.delete(3)
    for one in (manager, CheckpointManager(tmp_path)):
        assert one.all_steps() == [0, 1, 2]
    manager.save(4, small(40))
    manager.gc()
    assert manager.all_steps() == [0, 1, 2, 4]
    assert len(stores.snapshot_files(tmp_path)) == 4


@pytest.mark.parametrize("keep", [None, 3])
def test_collecting_does_not_bring_back_what_was_left_behind(
    tmp_path: Path, keep: int | None
) -> None:
    manager = saved(tmp_path, 1, 2, 3, max_to_keep=keep)
    manager.merge()  # 3 is in a file with 2 from here on
    manager.restore(2, rewind=True)
    manager.save(4, small(40))
    manager.delete(4)
    for _ in range(2):
        assert manager.all_steps() == CheckpointManager(tmp_path).all_steps() == [1, 2]
        manager.gc()
    assert manager.gc().files == []
    assert manager.verify().problems == []
    manager.save(5, small(5))
    assert manager.all_steps() == [1, 2, 5]


def test_a_merged_file_may_hold_what_has_lost_its_parent_to_a_rewind(tmp_path: Path) -> None:
    manager, bases = train(tmp_path, 5, full_every=3)  # 3 is full, 4 a delta on it
    manager.merge([0, 1, 2, 4])
    manager.restore(2, rewind=True)
    manager.save(5, TREES[5])
    bases[5] = stores.base_of(manager)
    assert [name[:10] for name in manager.gc().files] == ["0000000003"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(manager, bases, [0, 1, 2, 5])
        manager.merge()
        manager.gc()
        check(manager, bases, [0, 1, 2, 5])


def test_generations_go_together(tmp_path: Path) -> None:
    manager = saved(tmp_path, 1, 2)
    manager.save(2, small(20), overwrite=True)
    manager.delete(2)
    assert CheckpointManager(tmp_path).all_steps() == [1]
    manager.save(2, small(21))
    manager.save(2, small(22), overwrite=True)
    manager.save(3, small(3))
    manager.gc()
    assert manager.all_steps() == [1, 2, 3]
    assert manager.restore(2)["n"] == 22


def test_where_a_rewind_goes_on_from_stays(tmp_path: Path) -> None:
    manager, bases = train(tmp_path, 5)
    manager.close()
    manager = CheckpointManager(tmp_path, max_to_keep=1)
    manager.restore(1, rewind=True)
    with pytest.raises(ValueError, match="where the next save goes on from"):
        manager.delete(1)
    manager.gc()
    assert manager.all_steps() == [1]
    manager.save(2, TREES[9])
    assert manager.all_steps() == [2]
    assert stores.arrays_of(manager.restore(2, residual=False)) == stores.base_of(manager)
    assert bases


@pytest.mark.filterwarnings("error")
def test_collecting_what_is_left_over(tmp_path: Path) -> None:
    manager, bases = train(tmp_path, 6, full_every=50)
    manager.restore(2, rewind=True)
    manager.save(3, TREES[9])
    bases[3] = stores.base_of(manager)
    newest = stores.snapshot_files(tmp_path)[-1]
    shutil.copyfile(newest, tmp_path / "a copy.ckptz")
    residual = next(tmp_path.glob("*.residual.ckptz"))
    shutil.copyfile(residual, tmp_path / "a copy.residual.ckptz")
    (tmp_path / "notes.txt").write_text("not ours")
    before = stores.files(tmp_path)
    told = manager.gc(dry_run=True)
    assert stores.files(tmp_path) == before
    found = manager.gc()
    assert found == told
    assert (found.kept, found.dropped) == ([0, 1, 2, 3], [])
    after = stores.files(tmp_path)
    assert set(before) - set(after) == set(found.files)
    assert sum(len(before[name]) for name in found.files) == found.bytes
    assert len(after) == 6
    check(manager, bases, [0, 1, 2, 3])
    assert manager.gc().files == []


def test_single_files_in_a_store_are_not_its_own(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 5, max_to_keep=2, full_every=2)
    ckptz.save_file(TREES[7], tmp_path / "best.ckptz")
    ckptz.save_file(TREES[8], tmp_path / "other.ckptz")
    manager.save(5, TREES[5])
    manager.gc()
    manager.delete(4)
    manager.merge()
    assert manager.all_steps() == [5]
    for step, name in ((7, "best"), (8, "other")):
        found = ckptz.load_file(tmp_path / f"{name}.ckptz")
        assert stores.digest(found) == stores.digest(TREES[step])
    # Nor are they where there is nothing else.
    for path in [*tmp_path.glob("0*"), tmp_path / "lock"]:
        path.unlink()
    manager.close()
    manager = CheckpointManager(tmp_path, max_to_keep=1)
    manager.gc()
    assert sorted(path.name for path in tmp_path.glob("*.ckptz")) == ["best.ckptz", "other.ckptz"]


def test_files_that_cannot_be_read_are_left_alone_and_what_may_need_them(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 5, full_every=50)
    manager.close()
    path = stores.snapshot_files(tmp_path)[1]
    good = path.read_bytes()
    path.write_bytes(good[:-5])
    with pytest.warns(ckptz.CkptzWarning, match="skipped"):
        manager = CheckpointManager(tmp_path)
    manager.save(5, TREES[5])
    assert manager.gc().files == []
    assert manager.all_steps() == [0, 5]
    path.write_bytes(good)
    manager.reload()
    # They have left the line, for the save could not go on from them; but they are whole.
    report = manager.verify()
    assert (report.ok, report.snapshots, report.steps) == (True, 6, [0, 5])


def test_what_needs_a_lost_file_stays(tmp_path: Path) -> None:
    manager, bases = train(tmp_path, 5, full_every=50)
    path = stores.snapshot_files(tmp_path)[1]
    good = path.read_bytes()
    path.unlink()
    with pytest.warns(ckptz.CkptzWarning, match="3 snapshots cannot be restored") as told:
        manager.reload()
    first = stores.snapshot_files(tmp_path)[1].name
    text = str(told[0].message)
    assert len(told) == 1
    assert first in text
    assert any(one.hex() in text for one in manager._store.orphans.values())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        manager.reload()
        assert manager.all_steps() == [0]
        assert manager.gc().files == []
        assert len(manager.verify().problems) == 3
        path.write_bytes(good)
        manager.reload()
    check(manager, bases, list(range(5)))
    assert stores.digest(manager.restore()) == stores.digest(TREES[4])


def test_a_lost_base_does_not_take_the_rest_with_it(tmp_path: Path) -> None:
    train(tmp_path, 12, max_to_keep=3)[0].close()
    path = stores.snapshot_files(tmp_path)[0]
    good = path.read_bytes()
    path.unlink()
    before = stores.files(tmp_path)
    assert any(name.endswith(".residual.ckptz") for name in before)
    with pytest.warns(ckptz.CkptzWarning, match="3 snapshots cannot be restored"):
        manager = CheckpointManager(tmp_path, max_to_keep=3)
    assert manager.latest_step() is None
    for step in range(4):
        manager.save(step, TREES[step])
    manager.gc()
    assert manager.all_steps() == [1, 2, 3]
    assert before.items() <= stores.files(tmp_path).items()
    path.write_bytes(good)
    manager.reload()
    assert manager.verify().problems == []
    manager.gc()
    assert len(stores.snapshot_files(tmp_path)) == 4


def test_a_save_succeeds_though_nothing_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, bases = train(tmp_path, 4, max_to_keep=2, full_every=2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        patch.setattr(Path, "unlink", refuse)
        for step in (4, 5):
            with pytest.warns(ckptz.CkptzWarning, match="the next save tries again"):
                manager.save(step, TREES[step])
    assert stores.digest(manager.restore()) == stores.digest(TREES[5])
    manager.save(6, TREES[6])
    assert manager.all_steps() == [5, 6]
    assert len(stores.snapshot_files(tmp_path)) == 3
    assert bases


def refuse(*_: Any, **__: Any) -> None:
    raise PermissionError(1, "Operation not permitted", "a file")
