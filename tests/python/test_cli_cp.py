"""`ckptz cp`: stores copied between folders and (fake) object stores, checked, and gone on with."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import ckptz
import fake_objects
import pytest
import stores
from ckptz import CheckpointManager
from cli_tools import fails, run
from fake_objects import Bucket
from trees import assert_same

URL = "s3://bucket/run"
TREES = list(stores.training(10))


def begun(place: Path | str, steps: int = 4, **options: Any) -> CheckpointManager:
    manager = CheckpointManager(place, **options)
    for step in range(steps):
        manager.save(step, TREES[step])
    return manager


def contents(place: Path | str) -> dict[int, str]:
    reader = CheckpointManager(place, readonly=True)
    assert reader.verify().ok
    return {step: stores.digest(reader.restore(step)) for step in reader}


def held(place: Path | str, bucket: Bucket) -> dict[str, bytes]:
    """Names and bytes of a store's files."""
    if isinstance(place, Path):
        return stores.files(place)
    start = place.removeprefix("s3://bucket/") + "/"
    return {k.removeprefix(start): v for k, v in bucket.objects.items() if k.startswith(start)}


def copy(source: object, destination: object) -> dict[str, Any]:
    ran = run("cp", source, destination, "--json")
    assert ran.code == 0, ran
    assert ran.err == ""
    return ran.document


@pytest.mark.parametrize("source", ["folder", "url"])
@pytest.mark.parametrize("destination", ["folder", "url"])
def test_a_copy_is_the_same_store(
    bucket: Bucket, tmp_path: Path, source: str, destination: str
) -> None:
    here = tmp_path / "here" if source == "folder" else URL
    there = tmp_path / "there" if destination == "folder" else "s3://bucket/copy"
    begun(here).close()
    original = held(here, bucket)
    document = copy(here, there)
    assert held(there, bucket) == original
    assert held(here, bucket) == original
    assert document["copied"] == len(original)
    assert document["bytes"] == sum(map(len, original.values()))
    assert document["there"] == 0
    assert contents(there) == contents(here)
    assert_same(CheckpointManager(there).restore(), TREES[3])
    # It is gone on with, in the way of the place that it is in now; and copied back.
    with CheckpointManager(there) as manager:
        manager.save(4, TREES[4])
    expected = contents(there)
    copy(there, here)
    assert contents(here) == expected
    with CheckpointManager(here) as manager:
        manager.save(5, TREES[5])
        assert manager.all_steps() == [0, 1, 2, 3, 4, 5]
    assert_same(CheckpointManager(here).restore(), TREES[5])


def test_only_what_is_missing(bucket: Bucket, tmp_path: Path) -> None:
    manager = begun(tmp_path / "here")
    copy(tmp_path / "here", URL)
    closed = [name for what, name in bucket.requests if what == "close"]
    assert len(closed) == 5
    bucket.requests.clear()
    document = copy(tmp_path / "here", URL)
    assert (document["copied"], document["there"]) == (0, 5)
    assert {what for what, _ in bucket.requests} <= {"list", "get_range"}
    manager.save(4, TREES[4])
    document = copy(tmp_path / "here", URL)
    assert (document["copied"], document["there"]) == (2, 4)
    # The residual that the source has deleted is deleted there too.
    assert held(tmp_path / "here", bucket) == held(URL, bucket)
    ran = run("cp", tmp_path / "here", URL)
    assert ran.out == f"{URL}: copied 0 files, 0 B; 6 files there already\n"


@pytest.mark.parametrize("source", ["folder", "url"])
def test_a_copy_that_breaks_off_is_gone_on_with(
    bucket: Bucket, tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPTZ_NETWORK_DEADLINE", "0.01")
    here = tmp_path / "here" if source == "folder" else URL
    begun(here, 5, full_every=2).close()
    done = 0
    for number in range(60):
        left = [number]

        def breaking(what: str, name: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise fake_objects.GenericError("HTTP error: error sending request")

        bucket.before = breaking
        ran = run("cp", here, "s3://bucket/copy", "--json")
        bucket.before = fake_objects.nothing
        if ran.code == 0:
            break
        assert ran.code == 3
        assert ran.document["type"] == "NetworkError"
        assert ran.document.get("hint", "") in ("", "run it again to go on")
        # What is there so far is a store, whose snapshots are those of the original.
        so_far = held("s3://bucket/copy", bucket)
        assert len(so_far) >= done
        done = len(so_far)
        if so_far:
            reader = CheckpointManager("s3://bucket/copy")
            for step in reader:
                found = stores.arrays_of(reader.restore(step, residual=False))
                original = CheckpointManager(here, readonly=True)
                assert found == stores.arrays_of(original.restore(step, residual=False))
    assert ran.code == 0
    assert done > 3
    assert held("s3://bucket/copy", bucket) == held(here, bucket)
    assert contents("s3://bucket/copy") == contents(here)


@pytest.mark.parametrize("source", ["folder", "url"])
def test_damaged_files_are_left_out(bucket: Bucket, tmp_path: Path, source: str) -> None:
    here = tmp_path / "here" if source == "folder" else URL
    begun(here, 4, full_every=0).close()
    names = [n for n in sorted(held(here, bucket)) if n[0] == "0" and ".residual." not in n]
    data = bytearray(held(here, bucket)[names[2]])
    data[20] ^= 1
    if isinstance(here, Path):
        (here / names[2]).write_bytes(data)
    else:
        bucket.objects["run/" + names[2]] = bytes(data)
    ran = run("cp", here, tmp_path / "copy", "--json")
    assert ran.code == 1, ran
    problems = ran.document["problems"]
    assert problems[0]["file"] == names[2]
    assert "payload does not match its checksum" in problems[0]["what"]
    assert CheckpointManager(tmp_path / "copy").all_steps() == [0, 1]
    assert "left out: " in run("cp", here, tmp_path / "copy").out


def test_what_does_not_read_back_is_deleted_again(bucket: Bucket, tmp_path: Path) -> None:
    begun(tmp_path / "here", 2).close()

    def spoiling(what: str, name: str) -> None:
        if what == "close":
            key = f"run/{name}"
            data = bucket.objects[key]
            bucket.objects[key] = data[:17] + bytes([data[17] ^ 1]) + data[18:]

    bucket.after = spoiling
    line = fails(3, "cp", tmp_path / "here", URL)
    assert "the copy has been deleted again" in line
    bucket.after = fake_objects.nothing
    assert copy(tmp_path / "here", URL)["copied"] > 0
    assert held(URL, bucket) == stores.files(tmp_path / "here")


def test_another_run_is_not_mixed_in(bucket: Bucket, tmp_path: Path) -> None:
    begun(tmp_path / "one", 3).close()
    begun(tmp_path / "other", 2).close()
    begun(URL, 1).close()
    for destination in (tmp_path / "other", URL):
        line = fails(3, "cp", tmp_path / "one", destination)
        assert "holds another run than" in line
    assert contents(tmp_path / "other").keys() == {0, 1}


def test_a_file_of_another_size_is_not_replaced(tmp_path: Path) -> None:
    begun(tmp_path / "here", 3).close()
    copy(tmp_path / "here", tmp_path / "there")
    first = stores.snapshot_files(tmp_path / "there")[0]
    first.write_bytes(first.read_bytes()[:50])
    ran = run("cp", tmp_path / "here", tmp_path / "there", "--json")
    assert ran.code == 1
    assert first.name in ran.out
    assert len(first.read_bytes()) == 50
    first.unlink()
    copy(tmp_path / "here", tmp_path / "there")
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_places(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no snapshots" in fails(3, "cp", tmp_path / "empty", tmp_path / "x")
    assert "no snapshots" in fails(3, "cp", tmp_path / "none", tmp_path / "x")
    assert "Unable to recognise URL" in fails(2, "cp", "x9://a/b", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    begun(tmp_path / "a b", 2).close()
    copy((tmp_path / "a b").as_uri(), tmp_path / "copy")
    assert contents(tmp_path / "copy").keys() == {0, 1}
    shutil.move(tmp_path / "copy", tmp_path / "moved")
    assert contents(tmp_path / "moved").keys() == {0, 1}


def test_a_writer_at_the_destination(tmp_path: Path) -> None:
    begun(tmp_path / "here", 3).close()
    writer = CheckpointManager(tmp_path / "there")
    writer.save(0, TREES[0])
    assert "another writer holds this store" in fails(
        3, "cp", tmp_path / "here", tmp_path / "there"
    )


def test_copying_beside_a_writer(bucket: Bucket, tmp_path: Path) -> None:
    """What is saved meanwhile comes along, and residuals may vanish."""
    writer = begun(tmp_path / "here", 3)
    saved: list[int] = []
    one_at_a_time = threading.Lock()  # several files are copied at once

    def saving(what: str, name: str) -> None:
        with one_at_a_time:
            if what == "close" and len(saved) < 3:
                saved.append(3 + len(saved))
                writer.save(saved[-1], TREES[saved[-1]])

    bucket.before = saving
    copy(tmp_path / "here", URL)
    bucket.before = fake_objects.nothing
    assert saved == [3, 4, 5]
    assert contents(URL).keys() == {0, 1, 2, 3, 4, 5}
    copy(tmp_path / "here", URL)
    assert held(URL, bucket) == stores.files(tmp_path / "here")


def test_other_commands_take_urls(bucket: Bucket, tmp_path: Path) -> None:
    begun(URL, 3, policy="exact").close()
    assert [row["step"] for row in run("ls", URL, "--json").document["steps"]] == [0, 1, 2]
    assert run("info", URL).out.startswith(f"{URL}: a store\n")
    assert run("verify", URL).code == 0
    assert run("unpack", URL, "-o", tmp_path / "x.npz").code == 0
    assert "no snapshots" in fails(3, "ls", "s3://bucket/none")
    assert ckptz.CheckpointManager(URL).path == URL
