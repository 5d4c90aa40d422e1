"""`verify`: every byte and every chunk of every snapshot, on the line and off it."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import ckptz
import pytest
import stores
from ckptz import CheckpointManager, Problem
from ckptz.restore import OpenChain
from test_damage_hostile import refit
from trees import assert_same

TREES = list(stores.training(8))


@pytest.fixture
def manager(tmp_path: Path) -> CheckpointManager:
    """Steps 0 to 4, of which 3 and 4 have left the line, and another 3 on it."""
    manager = CheckpointManager(tmp_path, full_every=0)
    for step in range(5):
        manager.save(step, TREES[step])
    manager.restore(2, rewind=True)
    manager.save(3, TREES[5])
    return manager


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def names(manager: CheckpointManager) -> dict[str, Path]:
    found = {}
    for entry in manager._store.entries.values():
        found[f"{entry.meta.step}.{entry.meta.sequence}"] = Path(manager.path) / entry.name
    return found


def test_a_good_store(manager: CheckpointManager) -> None:
    report = manager.verify()
    assert report.ok
    assert report.problems == []
    assert report.steps == [0, 1, 2, 3]
    assert report.snapshots == 6
    assert CheckpointManager(manager.path, readonly=True).verify() == report


def test_damage_off_the_line_is_found(manager: CheckpointManager) -> None:
    path = names(manager)["4.4"]
    flip(path, 20)
    report = manager.verify()
    assert report.steps == [0, 1, 2, 3]
    assert report.snapshots == 5
    assert {problem.file for problem in report.problems} == {path.name}
    assert {problem.step for problem in report.problems} == {4}


def test_damage_in_the_middle_hides_what_comes_after(manager: CheckpointManager) -> None:
    path = names(manager)["2.2"]
    flip(path, 20)
    report = manager.verify()
    assert report.steps == [0, 1]
    assert report.snapshots == 2
    assert path.name in {problem.file for problem in report.problems}
    assert {problem.step for problem in report.problems} == {2, 3, 4}
    # It counts as damaged from here on.
    assert manager.all_steps() == [0, 1]


def test_a_flip_in_every_file(manager: CheckpointManager, tmp_path: Path) -> None:
    for path in tmp_path.glob("*.ckptz"):
        good = path.read_bytes()
        for at in range(0, len(good), 37):
            flip(path, at)
            report = quiet_verify(tmp_path)
            assert path.name in {problem.file for problem in report.problems}, (path, at)
            path.write_bytes(good)
    assert quiet_verify(tmp_path).ok


def quiet_verify(path: Path) -> ckptz.VerifyReport:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ckptz.CkptzWarning)
        return CheckpointManager(path, readonly=True).verify()


def test_a_bad_payload_checksum_alone(manager: CheckpointManager, tmp_path: Path) -> None:
    """What is decoded may be right, and the file damaged all the same."""
    path = names(manager)["0.0"]
    data = bytearray(path.read_bytes())
    entry = next(e for e in manager._store.entries.values() if e.meta.sequence == 0)
    wrong = bytearray(refit(bytes(data), entry.payload_bytes))
    assert wrong == data
    other = bytearray(data)
    other[16] ^= 1
    crc_of_other = refit(bytes(other), entry.payload_bytes)[-24:]
    path.write_bytes(bytes(data[:-24]) + crc_of_other)
    report = CheckpointManager(tmp_path, readonly=True).verify()
    assert [problem.step for problem in report.problems] == [0]
    assert "the payload does not match its checksum" in report.problems[0].what
    # Every other step needs this file.
    assert report.steps == []


def long_run(path: Path, steps: int) -> CheckpointManager:
    manager = CheckpointManager(path, full_every=0)
    for step, tree in enumerate(stores.training(steps)):
        manager.save(step, tree)
    return manager


def test_one_problem_a_damaged_file_and_a_line_a_hidden_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = long_run(tmp_path, 30)
    paths = stores.snapshot_files(tmp_path)
    damaged = [paths[5], paths[20]]
    for path in damaged:
        flip(path, 20)
    chains = []
    real = OpenChain.check

    def check(chain: OpenChain, *arguments: Any) -> None:
        chains.append(len(chain.layers))
        real(chain, *arguments)

    monkeypatch.setattr(OpenChain, "check", check)
    report = manager.verify()
    # Once for each damaged file, once for what is good, once for the residual if that can be.
    assert len(chains) <= 4
    assert report.steps == manager.all_steps() == list(range(5))
    assert report.snapshots == 5
    by_file = {problem.file: problem for problem in report.problems}
    assert len(by_file) == len(report.problems)
    assert sorted(p.step or 0 for p in report.problems) == list(range(5, 30))
    # The first in the payload is what the weights are predicted from.
    assert "tensor optimizer/" in by_file[paths[5].name].what
    assert "does not match its checksum" in by_file[paths[20].name].what
    for step in {*range(6, 30)} - {20}:
        assert f"needs {paths[5].name}, which is damaged" in by_file[paths[step].name].what


def copied(path: Path, name: str = "copy.ckptz") -> Path:
    copy = path.with_name(name)
    copy.write_bytes(path.read_bytes())
    return copy


@pytest.mark.parametrize("name", ["copy.ckptz", "0copy.ckptz"])
def test_a_file_and_its_copy_that_are_damaged_alike(tmp_path: Path, name: str) -> None:
    manager = long_run(tmp_path, 2)
    path = stores.snapshot_files(tmp_path)[0]
    flip(path, 20)
    copied(path, name)
    for reader in (CheckpointManager(tmp_path, readonly=True), manager):
        report = reader.verify()
        assert report.steps == reader.all_steps() == []
        assert {problem.file for problem in report.problems} >= {path.name, name}
        with pytest.raises(ckptz.MissingSnapshotError):
            reader.restore(0)


@pytest.mark.parametrize("name", ["copy.ckptz", "0copy.ckptz"])
@pytest.mark.parametrize("which", ["*0-*.ckptz", "*.residual.ckptz"])
def test_a_damaged_copy_is_found_and_does_no_harm(tmp_path: Path, name: str, which: str) -> None:
    tree = TREES[1]
    with CheckpointManager(tmp_path) as manager:
        manager.save(0, TREES[0])
        manager.save(10, tree)
    path = next(path for path in sorted(tmp_path.glob(which)))
    flip(copied(path, name), 20)
    reader = CheckpointManager(tmp_path, readonly=True)
    report = reader.verify()
    assert [problem.file for problem in report.problems] == [name]
    assert report.steps == reader.all_steps() == [0, 10]
    assert_same(reader.restore(), tree)


def test_the_report_goes_by_the_line_after_a_rewind(manager: CheckpointManager) -> None:
    manager.restore(1, rewind=True)
    assert manager.verify().steps == manager.all_steps() == [0, 1]


def test_a_missing_parent_and_a_missing_file(manager: CheckpointManager) -> None:
    paths = names(manager)
    paths["1.1"].unlink()
    report = manager.verify()
    assert report.steps == [0]
    assert report.snapshots == 1
    assert {problem.step for problem in report.problems} == {2, 3, 4}
    assert all("needs snapshot" in problem.what for problem in report.problems)


def test_a_damaged_residual(manager: CheckpointManager, tmp_path: Path) -> None:
    path = next(tmp_path.glob("*.residual.ckptz"))
    flip(path, 30)
    report = manager.verify()
    assert report.steps == [0, 1, 2, 3]
    assert report.snapshots == 6
    assert {problem.file for problem in report.problems} == {path.name}


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
def test_a_file_that_is_none(manager: CheckpointManager, tmp_path: Path) -> None:
    (tmp_path / "junk.ckptz").write_bytes(b"junk")
    report = manager.verify()
    text = f"{tmp_path / 'junk.ckptz'}: offset 0: not a ckptz file"
    assert report.problems == [Problem("junk.ckptz", text)]
    assert not report.ok
    assert report.steps == [0, 1, 2, 3]


def test_progress_counts_what_is_read(manager: CheckpointManager) -> None:
    seen: list[int] = []
    manager.verify(progress=seen.append)
    payloads = [entry.payload_bytes for entry in manager._store.entries.values()]
    assert sum(seen) >= 2 * sum(payloads)


def test_all_files_are_closed_again(manager: CheckpointManager) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    manager.verify()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
