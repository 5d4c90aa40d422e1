"""Readers beside a writer: they leave no trace, and see all that is committed."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import stores
from ckptz import CheckpointManager
from stores import begun
from trees import assert_same

TREES = list(stores.training(8))


def listing(path: Path) -> list[tuple[Any, ...]]:
    found = []
    for one in [path, *sorted(path.iterdir())]:
        stat = one.stat()
        found.append((one.name, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino))
    return found


def test_readers_change_nothing(tmp_path: Path) -> None:
    begun(tmp_path, 3).close()
    (tmp_path / "lock").unlink()
    (tmp_path / ".tmp-1-0000000000001ef7").write_bytes(b"x")
    before = listing(tmp_path)
    with CheckpointManager(tmp_path, readonly=True) as reader:
        reader.restore()
        with pytest.raises(ValueError, match="read-only"):
            reader.restore(1, rewind=True)
        with reader.open(0) as snapshot:
            snapshot["model/weight"].numpy()
        reader.verify()
        reader.stats()
        reader.reload()
        with pytest.raises(ValueError, match="this manager is read-only"):
            reader.save(9, TREES[0])
    assert listing(tmp_path) == before


def test_a_store_on_a_read_only_disk(tmp_path: Path) -> None:
    begun(tmp_path / "store", 2).close()
    place = tmp_path / "mounted"
    place.mkdir()
    try:
        for words in (["--bind", str(tmp_path / "store")], ["-o", "remount,ro,bind"]):
            subprocess.run(["mount", *words, str(place)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("may not mount here")
    try:
        for readonly in (True, False):
            manager = CheckpointManager(place, readonly=readonly)
            assert_same(manager.restore(), TREES[1])
            assert manager.verify().ok
        with pytest.raises(OSError, match="Read-only file system"):
            manager.save(2, TREES[2])
        assert manager.all_steps() == [0, 1]
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_reader_sees_commits_when_it_reloads(tmp_path: Path) -> None:
    writer = begun(tmp_path, 2)
    reader = CheckpointManager(tmp_path, readonly=True)
    writer.save(2, TREES[2])
    assert reader.all_steps() == [0, 1]
    reader.reload()
    assert reader.all_steps() == [0, 1, 2]
    assert_same(reader.restore(), TREES[2])
    writer.restore(0, rewind=True)
    writer.save(1, TREES[5])
    reader.reload()
    assert reader.all_steps() == [0, 1]
    assert_same(reader.restore(), TREES[5])


@pytest.mark.filterwarnings("error")
def test_a_reader_behind_takes_the_newer_snapshot_rather_than_a_lost_residual(
    tmp_path: Path,
) -> None:
    """The writer deletes a residual only after something newer is durable."""
    writer = begun(tmp_path, 2)
    reader = CheckpointManager(tmp_path, readonly=True)
    writer.save(2, TREES[2])
    assert_same(reader.restore(), TREES[2])
    behind = CheckpointManager(tmp_path, readonly=True)
    writer.save(3, TREES[3])
    # Asked for by its number it is what it is in the history, without a word.
    assert stores.digest(behind.restore(2)) == stores.digest(writer.restore(2))
    assert stores.digest(behind.restore(2)) != stores.digest(TREES[2])


def test_an_open_snapshot_outlives_its_files(tmp_path: Path) -> None:
    writer = begun(tmp_path, 2)
    snapshot = writer.open(1)
    writer.save(2, TREES[2])
    for path in stores.snapshot_files(tmp_path):
        path.unlink()
    assert snapshot["model/weight"].numpy().tobytes() == TREES[1]["model"]["weight"].tobytes()
    snapshot.close()


def test_reload_and_verify_beside_saves(tmp_path: Path) -> None:
    manager = begun(tmp_path, 1)
    failures: list[BaseException] = []
    done = threading.Event()

    def looking() -> None:
        try:
            while not done.is_set():
                manager.reload()
                assert manager.verify().ok
        except BaseException as error:
            failures.append(error)

    lookers = [threading.Thread(target=looking) for _ in range(3)]
    for looker in lookers:
        looker.start()
    for step in range(1, 8):
        manager.save(step, TREES[step])
        manager.save(step, TREES[step], overwrite=True)
    done.set()
    for looker in lookers:
        looker.join()
    assert failures == []


def test_readers_of_other_processes_beside_a_writer(tmp_path: Path) -> None:
    code = """
import sys, warnings, ckptz, stores
warnings.simplefilter("error")
digests = {stores.digest(tree): step for step, tree in enumerate(stores.training(40))}
newest = -1
while newest < 39:
    reader = ckptz.CheckpointManager(sys.argv[1], readonly=True)
    step = digests[stores.digest(reader.restore())]
    assert step >= newest, (step, newest)
    newest = step
"""
    manager = CheckpointManager(tmp_path, full_every=7)
    trees = list(stores.training(40))
    manager.save(0, trees[0])
    command = [sys.executable, "-c", code, str(tmp_path)]
    readers = [
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=stores.environment())
        for _ in range(2)
    ]
    for step in range(1, 40):
        manager.save(step, trees[step])
    for reader in readers:
        _, said = reader.communicate(timeout=60)
        assert reader.returncode == 0, said
