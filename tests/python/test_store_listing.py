"""A store with many snapshots is not looked through anew at every save."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ckptz import CheckpointManager, CkptzError, CkptzWarning
from ckptz.storage import local
from numpy.typing import NDArray

State = dict[str, NDArray[np.float32]]


def state(step: int) -> State:
    return {"w": np.linspace(0, 1, 64, dtype=np.float32) + np.float32(step)}


def saved(folder: Path, steps: int) -> CheckpointManager:
    manager = CheckpointManager(folder, full_every=5)
    for step in range(steps):
        manager.save(step, state(step))
    return manager


def test_a_save_looks_only_at_the_files_that_it_goes_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with saved(tmp_path, 30) as manager:
        looked: list[str] = []
        look = local._looked_at

        def counted(entry: os.DirEntry[str]) -> object:
            looked.append(entry.name)
            return look(entry)

        monkeypatch.setattr(local, "_looked_at", counted)
        for step in range(30, 40):
            looked.clear()
            manager.save(step, state(step))
            # Three listings, each with a chain of five at most, the residual and the lock.
            assert len(looked) <= 3 * (5 + 2)
    assert len(list(tmp_path.iterdir())) > 40


def test_files_that_others_put_there_or_take_away_are_noticed(tmp_path: Path) -> None:
    with saved(tmp_path, 12) as manager:
        old = sorted(path for path in tmp_path.iterdir() if path.name.startswith("0000000003-"))[0]
        other = tmp_path / "other"
        other.write_bytes(b"not a snapshot")
        other.rename(old)
        with pytest.warns(CkptzWarning, match="0000000003"):
            manager.save(12, state(12))
        assert {4, 3}.isdisjoint(manager.all_steps())
        old.unlink()
        manager.save(13, state(13))
        assert manager.all_steps() == [0, 1, 2, *range(5, 14)]


def test_a_file_of_the_newest_chain_that_is_written_to_in_place_is_noticed(tmp_path: Path) -> None:
    with saved(tmp_path, 8) as manager:
        newest = next(
            path
            for path in tmp_path.iterdir()
            if path.name.startswith("0000000007-") and ".residual" not in path.name
        )
        content = bytearray(newest.read_bytes())
        content[len(content) // 2] ^= 1
        with newest.open("r+b") as file:
            file.write(content)
        with pytest.warns(CkptzWarning):
            manager.save(8, state(8))
        restored = manager.restore(8)
        assert isinstance(restored, dict)
        assert np.array_equal(restored["w"], state(8)["w"])


def file_of(folder: Path, step: int) -> Path:
    """Return the file of a step's snapshot."""
    files = [path for path in folder.iterdir() if path.name.startswith(f"{step:010d}-")]
    return next(path for path in files if ".residual" not in path.name)


def of_full(folder: Path, steps: int, **options: Any) -> CheckpointManager:
    """Return the manager of a store of full snapshots."""
    manager = CheckpointManager(folder, full_every=1, exact="none", **options)
    for step in range(steps):
        manager.save(step, state(step), metrics={"score": -step})
    return manager


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
def test_collecting_looks_at_all_files(tmp_path: Path) -> None:
    """Of two copies one has been cut off in place: the other one stays."""
    with of_full(tmp_path, 3) as manager:
        shutil.copy(file_of(tmp_path, 1), tmp_path / "copy.ckptz")
        manager.reload()
        os.truncate(file_of(tmp_path, 1), 50)
        manager.gc()
        manager.reload()
        assert manager.all_steps() == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
def test_nothing_goes_in_favour_of_what_is_no_good_any_more(tmp_path: Path) -> None:
    best: dict[str, Any] = {"max_to_keep": 3, "best_fn": lambda metrics: metrics["score"]}
    with of_full(tmp_path, 3, **best) as manager:
        os.truncate(file_of(tmp_path, 0), 50)
        manager.save(3, state(3), metrics={"score": -3})
        assert manager.all_steps() == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
def test_a_save_looks_at_what_it_goes_on_from_though_that_is_not_the_newest(
    tmp_path: Path,
) -> None:
    with of_full(tmp_path / "other", 6):
        foreign = file_of(tmp_path / "other", 5)
    with CheckpointManager(tmp_path / "run") as manager:
        for step in (10, 11, 12):
            manager.save(step, state(step))
        # Of an older step, and yet what was committed last.
        shutil.copy(foreign, tmp_path / "run")
        manager.reload()
        os.truncate(file_of(tmp_path / "run", 11), 40)
        manager.save(13, state(13))
    with CheckpointManager(tmp_path / "run", readonly=True) as reader:
        restored = reader.restore(13)
        assert isinstance(restored, dict)
        assert np.array_equal(restored["w"], state(13)["w"])


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
def test_what_was_damaged_and_is_put_right_in_place_is_good_again(tmp_path: Path) -> None:
    with saved(tmp_path, 8) as manager:
        path = file_of(tmp_path, 1)
        good = path.read_bytes()
        bad = bytearray(good)
        bad[len(bad) // 4] ^= 1
        for content in (bad, good):
            with path.open("r+b") as file:
                file.write(content)
            if content is bad:
                with pytest.raises(CkptzError):
                    manager.restore(1)
        manager.save(8, state(8))
        assert manager.all_steps() == list(range(9))
        manager.restore(1)


def test_which_copy_is_used_does_not_depend_on_when_it_came(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, full_every=0, exact="none") as manager:
        for step in (1, 2, 3):
            manager.save(step, state(step))
        path = file_of(tmp_path, 2)
        content = path.read_bytes()
        manager.merge([2, 3])
        path.write_bytes(content)
        manager.reload()
        with CheckpointManager(tmp_path, readonly=True) as reader:
            assert reader.stats(3).restore_files == manager.stats(3).restore_files
            assert reader.stats(3).restore_bytes == manager.stats(3).restore_bytes
