"""A store with many snapshots is not looked through anew at every save."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from ckptz import CheckpointManager, CkptzWarning
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
