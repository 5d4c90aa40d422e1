"""Chunks that the core reads from files: the same content, and errors that name the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import ckptz
import numpy as np
import pytest
import stores
from ckptz import codec
from ckptz.storage.files import Reader
from test_save_beside import descriptors
from trees import assert_same

LARGE = 300_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[stores.State]]:
    """Three steps of a state whose chunks the core reads by itself."""
    path = tmp_path_factory.mktemp("large") / "store"
    rng = np.random.default_rng(5)
    states: list[stores.State] = []
    with ckptz.CheckpointManager(path, threads=2) as manager:
        for step in range(3):
            noise = rng.standard_normal(LARGE, dtype=np.float32) * np.float32(1e-3)
            before = states[-1]["w"] if states else np.zeros(LARGE, np.float32)
            states.append({"w": before + noise, "x": rng.random(LARGE), "b": np.ones(5)})
            manager.save(step, states[-1])
    return path, states


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that the core is given to read."""
    names: list[str] = []
    real = Reader.payload

    def noting(self: Reader, start: int) -> codec.Payload | None:
        names.append(Path(self.path).name)
        found = real(self, start)
        assert found is not None, "this system has a folder of open files"
        return found

    monkeypatch.setattr(Reader, "payload", noting)
    return names


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_core_reads_what_python_would(
    large: tuple[Path, list[stores.State]], used: list[str], threads: int
) -> None:
    path, states = large
    manager = ckptz.CheckpointManager(path, threads=threads, readonly=True)
    assert_same(manager.restore(), states[-1])
    steps = [stores.arrays_of(manager.restore(step, residual=False)) for step in range(3)]
    part = manager.open(1)["w"][70_000:200_001].tobytes()
    assert len(set(used)) >= 3
    assert manager.verify().ok
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "payload", lambda self, start: None)
        used.clear()
        assert_same(manager.restore(), states[-1])
        assert steps == [
            stores.arrays_of(manager.restore(step, residual=False)) for step in range(3)
        ]
        assert part == manager.open(1)["w"][70_000:200_001].tobytes()
        assert used == []


def test_a_file_that_is_cut_off_meanwhile_is_named(
    large: tuple[Path, list[stores.State]], used: list[str], tmp_path: Path
) -> None:
    for name, content in stores.files(large[0]).items():
        (tmp_path / name).write_bytes(content)
    manager = ckptz.CheckpointManager(tmp_path, readonly=True)
    snapshot = manager.open(0)
    name = stores.snapshot_files(tmp_path)[0].name
    os.truncate(tmp_path / name, 1_000_000)
    with pytest.raises(ckptz.FormatError, match=rf"{name}: offset \d+: tensor .*: .*cut off"):
        stores.arrays_of([snapshot["w"][:], snapshot["x"][:]])
    assert used


@pytest.mark.parametrize("residual", [False, True])
def test_an_error_of_the_system_names_the_file(
    large: tuple[Path, list[stores.State]], monkeypatch: pytest.MonkeyPatch, residual: bool
) -> None:
    path, _ = large
    manager = ckptz.CheckpointManager(path, readonly=True)
    reconstructed = manager.restore(residual=False)
    folder = os.open(path, os.O_RDONLY)
    real = Reader.payload

    def bad(self: Reader, start: int) -> codec.Payload | None:
        is_bad = ("residual" in Path(self.path).name) == residual
        return codec.Payload(folder, start) if is_bad else real(self, start)

    monkeypatch.setattr(Reader, "payload", bad)
    try:
        if residual:
            with pytest.warns(ckptz.CkptzWarning, match="the residual of step 2 is lost"):
                assert_same(manager.restore(), reconstructed)
        else:
            with pytest.raises(IsADirectoryError) as found:
                manager.restore(0)
            name = stores.snapshot_files(path)[0]
            assert found.value.filename == str(name)
            assert found.value.errno == errno.EISDIR
    finally:
        os.close(folder)


def test_where_nothing_can_be_opened_once_more_python_reads(
    large: tuple[Path, list[stores.State]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, start: int) -> codec.Payload:
        raise FileNotFoundError(errno.ENOENT, "no /proc")

    monkeypatch.setattr("ckptz.storage.files.Payload", refuse)
    path, states = large
    assert_same(ckptz.CheckpointManager(path, readonly=True).restore(), states[-1])


def test_closing_lets_go_of_every_descriptor(large: tuple[Path, list[stores.State]]) -> None:
    manager = ckptz.CheckpointManager(large[0], readonly=True)
    before = descriptors()
    with manager.open() as snapshot:
        snapshot["w"][:]
        assert descriptors() > before
    assert descriptors() == before
    manager.restore()
    assert descriptors() == before
