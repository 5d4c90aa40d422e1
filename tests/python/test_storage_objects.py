"""Saving into an object store, reading it, and what is no store. The store is a fake."""

from __future__ import annotations

import os
import sys
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import ckptz
import pytest
import stores
from ckptz import CheckpointManager
from ckptz.file import RESIDUAL, SNAPSHOT, FileReader, FileWriter, Pieces
from ckptz.share import COMMIT, PART, share_of
from ckptz.snapshot import Meta
from ckptz.storage import open_storage
from fake_objects import Bucket
from object_stores import TREES, URL, begun, check, kinds
from trees import assert_same

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import read_ckptz

# No warning either.
pytestmark = pytest.mark.filterwarnings("error")


def test_what_a_save_leaves(bucket: Bucket) -> None:
    manager = begun(3)
    assert kinds(bucket) == [*["commit"] * 3, *["part.ckptz"] * 3, "residual.ckptz"]
    assert [n for n in bucket.names() if n[0] == "c"] == [
        f"commit-{n:020d}.ckptz" for n in range(3)
    ]
    assert stores.arrays_of(manager.restore(residual=False)) == stores.base_of(manager)
    storage = open_storage(URL)
    with storage.open(f"commit-{2:020d}.ckptz") as source:
        commit = FileReader(source)
    held = commit.snapshots[0]
    assert (commit.kind, held.meta.sequence, held.headers) == (COMMIT, 2, b"")
    assert commit.share is not None
    with storage.open(commit.share.name) as source:
        part = FileReader(source)
    assert (part.kind, part.snapshots[0].id) == (PART, commit.share.digest)
    assert part.share is not None
    assert part.share.nonce == commit.share.nonce
    assert held.meta.parent == part.snapshots[0].meta.parent
    check(0, 1, 2)


def test_a_store_of_objects_is_read_by_the_plain_reader(bucket: Bucket, tmp_path: Path) -> None:
    manager = begun(4)
    for name, data in bucket.objects.items():
        (tmp_path / name.removeprefix("run/")).write_bytes(data)
    plain = read_ckptz.Store(str(tmp_path))
    assert plain.steps() == [0, 1, 2, 3]
    for step in range(4):
        weight = manager.restore(step)["model"]["weight"]
        assert plain.restore(step)["model/weight"].tobytes() == weight.tobytes()
    next(tmp_path.glob("commit-*3.ckptz")).unlink()
    assert read_ckptz.Store(str(tmp_path)).steps() == [0, 1, 2]


def test_order_of_a_save(bucket: Bucket) -> None:
    manager = begun(2)
    bucket.requests.clear()
    manager.save(2, TREES[2])
    changes = [what for what, name in bucket.requests if what in ("close", "put", "delete")]
    assert changes == ["close", "close", "put", "delete"]
    assert [name for what, name in bucket.requests if what == "put"] == [f"commit-{2:020d}.ckptz"]


def test_a_part_without_a_commit_is_no_snapshot(bucket: Bucket) -> None:
    begun(3)
    key = f"run/commit-{2:020d}.ckptz"
    commit = bucket.objects.pop(key)
    reader = CheckpointManager(URL, readonly=True)
    assert reader.all_steps() == [0, 1]
    assert reader.verify().ok
    bucket.objects[key] = commit
    check(0, 1, 2)


def test_a_commit_without_its_part_keeps_its_number(bucket: Bucket) -> None:
    begun(3).close()
    del bucket.objects["run/" + [n for n in bucket.names() if ".part." in n][2]]
    with pytest.warns(ckptz.CkptzWarning, match="its part 0000000002-.* is not there"):
        manager = CheckpointManager(URL)
    assert manager.all_steps() == [0, 1]
    problems = manager.verify().problems
    assert [problem.file for problem in problems] == [f"commit-{2:020d}.ckptz"]
    manager.save(2, TREES[2])
    assert f"commit-{3:020d}.ckptz" in bucket.names()
    assert manager.all_steps() == [0, 1, 2]
    assert_same(manager.restore(), TREES[2])


@pytest.mark.parametrize("cut", [0, 20, 100])
def test_a_damaged_commit_keeps_its_number(bucket: Bucket, cut: int) -> None:
    begun(3).close()
    key = f"run/commit-{2:020d}.ckptz"
    bucket.objects[key] = bucket.objects[key][:cut]
    with pytest.warns(ckptz.CkptzWarning, match="commit-0"):
        manager = CheckpointManager(URL)
    manager.save(5, TREES[5])
    assert f"commit-{3:020d}.ckptz" in bucket.names()
    assert_same(manager.restore(), TREES[5])


def test_flipped_bits_of_a_commit(bucket: Bucket) -> None:
    """Each is found, and hides nothing but this snapshot."""
    begun(3).close()
    key = f"run/commit-{2:020d}.ckptz"
    data = bucket.objects[key]
    for at in range(len(data)):
        bucket.objects[key] = data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ckptz.CkptzWarning)
            reader = CheckpointManager(URL, readonly=True)
        assert reader.all_steps() == [0, 1]
        assert [problem.file for problem in reader.verify().problems] == [key.removeprefix("run/")]


NONCE, DIGEST = b"n" * 16, b"d" * 16


@pytest.mark.parametrize(
    ("kind", "field", "error"),
    [
        (PART, None, "field `part`"),
        (PART, [], "field `part`"),
        (PART, [0, 1], "field `part`"),
        (PART, [1, 1, NONCE], "field `part`"),
        (PART, [-1, 1, NONCE], "field `part`"),
        (PART, [0, 1, b"short"], "wrong nonce"),
        (PART, [0, True, NONCE], "wrong nonce or number"),
        (PART, [0, 2, NONCE], "a snapshot in 2 parts"),
        (PART, [1, NONCE, [DIGEST], ["x"]], "field `part`"),
        (COMMIT, None, "field `part`"),
        (COMMIT, [0, 1, NONCE], "field `part`"),
        (COMMIT, [1, NONCE, [], []], "field `part`"),
        (COMMIT, [1, NONCE, [b""], ["x"]], "field `part`"),
        (COMMIT, [1, NONCE, [DIGEST, DIGEST], ["x", "y"]], "field `part`"),
        (COMMIT, [2, NONCE, [DIGEST, DIGEST], ["x", "y"]], "a snapshot in 2 parts"),
        (COMMIT, [1, b"", [DIGEST], ["x"]], "wrong nonce"),
        (SNAPSHOT, [1, NONCE, [DIGEST], ["x"]], "field `part`"),
        (RESIDUAL, ["x"], "field `part`"),
    ],
)
def test_hostile_parts_and_commits(kind: int, field: Any, error: str) -> None:
    meta = Meta(0, 0, None, DIGEST, 0, part=field)
    with pytest.raises(ckptz.FormatError, match=error):
        share_of(kind, meta)


def test_a_store_that_several_processes_wrote_is_refused(bucket: Bucket) -> None:
    manager = begun(2)
    meta = Meta(9, 9, None, DIGEST, 0, part=[2, NONCE, [DIGEST] * 2, ["x", "y"]])
    pieces = Pieces()
    FileWriter(pieces, COMMIT).finish(meta.encode(), b"", None)
    manager._store.storage.commit("commit-x.ckptz", b"".join(pieces))
    with pytest.raises(ckptz.UnknownVersionError, match=r"commit-x.ckptz: .* 2 parts"):
        CheckpointManager(URL)


def test_damage_of_a_part(bucket: Bucket) -> None:
    begun(3).close()
    key = "run/" + [n for n in bucket.names() if ".part." in n][2]
    data = bucket.objects[key]
    bucket.objects[key] = data[:20] + bytes([data[20] ^ 1]) + data[21:]
    manager = CheckpointManager(URL)
    with pytest.raises(ckptz.FormatError, match=r"s3://bucket/run/0000000002-.*offset"):
        manager.restore(2)
    manager.save(2, TREES[4])
    assert_same(CheckpointManager(URL).restore(), TREES[4])


def test_saves_go_on_after_rewinding(bucket: Bucket) -> None:
    manager = begun(5)
    manager.restore(1, rewind=True)
    manager.save(2, TREES[7])
    assert manager.all_steps() == [0, 1, 2]
    manager.save(2, TREES[2], overwrite=True)
    check(0, 1, 2)


# --- Reading ------------------------------------------------------------------------------------


def test_slices_read_ranges(bucket: Bucket) -> None:
    big = {"w": stores.weights(1, (1_000_000,))}
    manager = CheckpointManager(URL, policy="exact")
    manager.save(0, big)
    whole = sum(map(len, bucket.objects.values()))
    assert whole > 3_000_000
    with CheckpointManager(URL, readonly=True).open() as snapshot:
        bucket.read = 0
        assert snapshot["w"][70_000:70_010].tobytes() == big["w"][70_000:70_010].tobytes()
        assert 0 < bucket.read < 300_000
    # Of what is not read nothing is asked for: metadata alone tell what there is.
    bucket.read = 0
    assert CheckpointManager(URL, readonly=True).all_steps() == [0]
    assert bucket.read < 100_000


def test_a_large_file_goes_in_parts_and_comes_in_windows(bucket: Bucket) -> None:
    big = {"w": stores.weights(2, (6_000_000,)), "t": stores.weights(3, (3_000_000, 2))}
    CheckpointManager(URL, policy="exact").save(0, big)
    assert len([1 for what, _ in bucket.requests if what == "part"]) > 2
    assert_same(CheckpointManager(URL).restore(), big)


# --- Places -------------------------------------------------------------------------------------


def test_places_that_are_none(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"x9://a/b: Unable to recognise URL"):
        CheckpointManager("x9://a/b")
    with pytest.raises(FileNotFoundError, match="s3://bucket/none: there is no store"):
        CheckpointManager("s3://bucket/none", readonly=True)
    for text in ("soon", "-1", "nan", ""):
        monkeypatch.setenv("CKPTZ_NETWORK_DEADLINE", text)
        with pytest.raises(ValueError, match="CKPTZ_NETWORK_DEADLINE"):
            CheckpointManager(URL)


def test_without_obstore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ImportError, match=r"s3://bucket/run: needs obstore: pip install 'ckptz"):
        CheckpointManager(URL)


def test_objects_below_and_beside_are_left_alone(bucket: Bucket) -> None:
    bucket.objects |= {"run/other/0000000000-x.ckptz": b"x", "run2/y.ckptz": b"y"}
    bucket.objects["run/notes.txt"] = b"hello"
    bucket.made |= dict.fromkeys(bucket.objects, datetime.now(timezone.utc))
    begun(3).close()
    check(0, 1, 2)
    assert bucket.objects["run/notes.txt"] == b"hello"
    assert bucket.objects["run2/y.ckptz"] == b"y"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused(bucket: Bucket) -> None:
    manager = begun(2)
    child = os.fork()
    if child == 0:
        try:
            manager.save(2, TREES[2])
        except (OSError, ckptz.OtherProcessError):
            os._exit(0)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    manager.save(2, TREES[2])
    check(0, 1, 2)
