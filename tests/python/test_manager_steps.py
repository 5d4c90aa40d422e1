"""Steps, generations and lines, as api.md has them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager
from stores import saved, small
from trees import assert_same


def test_steps_are_in_numeric_order(tmp_path: Path) -> None:
    manager = saved(tmp_path, 9, 10, 99, 100, 1000)
    assert manager.all_steps() == [9, 10, 99, 100, 1000]
    assert list(manager) == manager.all_steps()
    assert manager.latest_step() == 1000
    assert repr(manager) == f"CheckpointManager({str(tmp_path)!r}, steps=[9, 10, 99, 100, 1000])"


@pytest.mark.parametrize("step", [0, 2**63 - 1, 10**10])
def test_the_smallest_and_largest_step(tmp_path: Path, step: int) -> None:
    saved(tmp_path, step).close()
    manager = CheckpointManager(tmp_path)
    assert manager.all_steps() == [step]
    assert manager.restore(step)["n"] == step
    if step == 2**63 - 1:
        with pytest.raises(ckptz.StepExistsError):
            manager.save(step, small())
        manager.save(step, small(1), overwrite=True)
        assert manager.restore()["n"] == 1


def test_numbers_of_other_types_that_are_integers_are_steps(tmp_path: Path) -> None:
    manager = saved(tmp_path, np.int64(3))
    assert manager.all_steps() == [3]
    assert type(manager.all_steps()[0]) is int
    assert manager.restore(np.uint8(3))["n"] == 3


@pytest.mark.parametrize("step", [-1, 2**63, 1.0, "1", True, None, np.float64(1)])
def test_what_is_no_step(tmp_path: Path, step: Any) -> None:
    manager = saved(tmp_path, 1)
    with pytest.raises(ValueError, match="is not an integer from 0 to 2\\^63 - 1"):
        manager.save(step, small())
    if step is not None:
        for use in (manager.restore, manager.open, manager.stats):
            with pytest.raises(ValueError, match="is not an integer"):
                use(step)


def test_a_step_that_is_there_and_one_below(tmp_path: Path) -> None:
    manager = saved(tmp_path, 5, 7)
    before = stores.files(tmp_path)
    with pytest.raises(ckptz.StepExistsError, match="step 7 is there already"):
        manager.save(7, small(1))
    with pytest.raises(ckptz.StepExistsError, match="step 5 is there already"):
        manager.save(5, small(1))
    with pytest.raises(ckptz.StepOrderError, match="step 6 is not above the newest, 7"):
        manager.save(6, small(1))
    assert stores.files(tmp_path) == before
    manager.save(8, small(8))
    assert manager.all_steps() == [5, 7, 8]


def test_a_missing_step_names_what_is_there(tmp_path: Path) -> None:
    manager = saved(tmp_path, 1, 2)
    for use in (manager.restore, manager.open, manager.stats):
        with pytest.raises(ckptz.MissingSnapshotError) as found:
            use(3)
        assert str(found.value) == (
            f"{tmp_path}: no snapshot of step 3 can be restored; there are 1, 2"
        )
        assert isinstance(found.value, LookupError)
    many = saved(tmp_path / "many", *range(20))
    with pytest.raises(ckptz.MissingSnapshotError, match=r"there are 0, 1, 2, 3, \.\. 17, 18, 19$"):
        many.restore(99)


def test_an_empty_store(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path / "new")
    assert manager.all_steps() == []
    assert manager.latest_step() is None
    assert not (tmp_path / "new").exists()
    for use in (manager.restore, manager.open, manager.stats):
        with pytest.raises(ckptz.MissingSnapshotError, match="no snapshot can be restored"):
            use()
    with pytest.raises(ckptz.MissingSnapshotError, match="there are none"):
        manager.restore(1)
    assert manager.verify().ok


# --- Generations and lines -----------------------------------------------------------------------


def test_overwriting_the_newest_step_makes_a_new_generation(tmp_path: Path) -> None:
    manager = saved(tmp_path, 1, 2)
    manager.save(2, small(20), overwrite=True)
    assert manager.all_steps() == [1, 2]
    assert manager.restore()["n"] == 20
    assert manager.restore(2)["n"] == 20
    assert len(stores.snapshot_files(tmp_path)) == 3
    newest = max(stores.snapshot_files(tmp_path), key=lambda p: p.stat().st_mtime_ns)
    newest.write_bytes(b"")
    with pytest.warns(ckptz.CkptzWarning, match="skipped: .* the file is empty"):
        again = CheckpointManager(tmp_path)
    assert again.restore(2)["n"] == 2


@pytest.mark.parametrize("full_every", [0, 1, 50])
def test_overwriting_an_older_step_takes_later_ones_off_the_line(
    tmp_path: Path, full_every: int
) -> None:
    manager = saved(tmp_path, 1, 2, 3, 4, full_every=full_every)
    manager.save(2, small(20), overwrite=True)
    assert manager.all_steps() == [1, 2]
    assert manager.restore()["n"] == 20
    # It does not need what has left the line.
    for step in (3, 4):
        next(tmp_path.glob(f"{step:010d}-*")).unlink()
    for store in (manager, CheckpointManager(tmp_path)):
        store.reload()
        assert_same(store.restore(), small(20))
        assert_same(store.restore(1), small(1))
        assert store.verify().ok


def test_overwriting_below_the_first_step_starts_the_line_anew(tmp_path: Path) -> None:
    manager = saved(tmp_path, 5, 6)
    manager.save(3, small(3), overwrite=True)
    assert manager.all_steps() == [3]
    assert manager.stats(3).kind == "full"
    manager.save(5, small(50))
    assert CheckpointManager(tmp_path).restore(5)["n"] == 50
    assert CheckpointManager(tmp_path).all_steps() == [3, 5]


def test_rewinding(tmp_path: Path) -> None:
    manager = saved(tmp_path, 1, 2, 3, 4)
    assert manager.restore(2, rewind=True)["n"] == 2
    assert manager.all_steps() == [1, 2]
    assert manager.latest_step() == 2
    # Not before the next save.
    assert CheckpointManager(tmp_path).all_steps() == [1, 2, 3, 4]
    manager.save(3, small(30))
    for store in (manager, CheckpointManager(tmp_path)):
        assert store.all_steps() == [1, 2, 3]
        assert store.restore(3)["n"] == 30
        assert store.restore()["n"] == 30
        with pytest.raises(ckptz.MissingSnapshotError):
            store.restore(4)
    assert len(stores.snapshot_files(tmp_path)) == 5
    assert manager.verify().snapshots == 5


def test_rewinding_twice_and_to_the_same_step(tmp_path: Path) -> None:
    manager = saved(tmp_path, *range(6))
    manager.restore(3, rewind=True)
    manager.save(4, small(40))
    manager.restore(2, rewind=True)
    manager.save(3, small(300))
    manager.restore(3, rewind=True)
    manager.save(4, small(400))
    assert [manager.restore(step)["n"] for step in manager] == [0, 1, 2, 300, 400]
    assert CheckpointManager(tmp_path).all_steps() == [0, 1, 2, 3, 4]


def test_rewinding_to_the_newest_loses_nothing(tmp_path: Path) -> None:
    manager = saved(tmp_path, 1, 2)
    manager.restore(rewind=True)
    manager.save(3, small(3))
    assert manager.all_steps() == [1, 2, 3]


def test_a_failed_save_after_a_rewind_leaves_the_rewind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = saved(tmp_path, 1, 2, 3)
    manager.restore(1, rewind=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            manager.save(2, small(20))
    assert manager.all_steps() == [1]
    manager.save(2, small(200))
    assert manager.all_steps() == [1, 2]


def test_a_failed_overwrite_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = saved(tmp_path, 1, 2, 3)
    with pytest.raises(ckptz.UnsupportedTypeError):
        manager.save(1, {"w": object()}, overwrite=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            manager.save(1, small(10), overwrite=True)
    assert manager.all_steps() == [1, 2, 3]
    manager.save(4, small(4))
    assert [manager.restore(step)["n"] for step in manager] == [1, 2, 3, 4]


def fail(*_: object) -> None:
    raise OSError(5, "Input/output error")


def test_what_a_read_only_manager_and_an_empty_path_cannot_do(tmp_path: Path) -> None:
    stores.saved(tmp_path, 1, 2)
    reader = ckptz.CheckpointManager(tmp_path, readonly=True)
    with pytest.raises(ValueError, match="read-only"):
        reader.restore(1, rewind=True)
    assert reader.all_steps() == [1, 2]
    with pytest.raises(ValueError, match="an empty path"):
        ckptz.CheckpointManager("")
