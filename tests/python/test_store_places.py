"""Stores that are moved, copied, renamed, merged, linked to, or lie in odd places."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

import ckptz
import pytest
import stores
from ckptz import CheckpointManager
from stores import begun, contents
from trees import assert_same

TREES = list(stores.training(10))


@pytest.mark.filterwarnings("error")
def test_a_store_is_moved_or_copied(tmp_path: Path) -> None:
    expected = contents(begun(tmp_path / "here"))
    shutil.copytree(tmp_path / "here", tmp_path / "copy")
    (tmp_path / "here").rename(tmp_path / "there")
    for path in (tmp_path / "there", tmp_path / "copy"):
        with CheckpointManager(path) as manager:
            assert contents(manager) == expected
            manager.save(4, TREES[4])
            assert_same(manager.restore(), TREES[4])


@pytest.mark.filterwarnings("error")
def test_names_are_hints(tmp_path: Path) -> None:
    expected = contents(begun(tmp_path))
    for number, path in enumerate(sorted(tmp_path.glob("*.ckptz"))):
        # As if each were another step's, and residuals no residuals.
        path.rename(tmp_path / f"{9 - number:010d}-renamed.ckptz")
    with CheckpointManager(tmp_path) as manager:
        assert contents(manager) == expected
        manager.save(4, TREES[4])
    assert contents(CheckpointManager(tmp_path))[0] == expected[0]
    assert_same(stores.fresh(tmp_path), TREES[4])


@pytest.mark.filterwarnings("error")
def test_copies_within_a_store(tmp_path: Path) -> None:
    manager = begun(tmp_path)
    expected = contents(manager)
    for path in list(tmp_path.glob("*.ckptz")):
        for prefix in ("a", "z"):
            shutil.copyfile(path, tmp_path / f"{prefix}-{path.name}")
    for store in (CheckpointManager(tmp_path), manager):
        store.reload()
        assert contents(store) == expected
        assert store.verify().snapshots == 4
    manager.save(4, TREES[4])
    assert manager.all_steps() == [0, 1, 2, 3, 4]
    assert len(list(tmp_path.glob("*.residual.ckptz"))) == 1
    manager.save(5, TREES[5])
    assert_same(stores.fresh(tmp_path), TREES[5])


def test_a_good_copy_serves_for_a_damaged_file(tmp_path: Path) -> None:
    expected = contents(begun(tmp_path))
    for number, path in enumerate(stores.snapshot_files(tmp_path)):
        copy = tmp_path / f"{'a' if number % 2 else 'z'}-{path.name}"
        shutil.copyfile(path, copy)
        data = bytearray(path.read_bytes())
        data[20] ^= 1
        path.write_bytes(data)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        manager = CheckpointManager(tmp_path)
        assert contents(manager) == expected
        assert_same(manager.restore(), TREES[3])


def test_a_file_that_is_repaired_is_good_again(tmp_path: Path) -> None:
    begun(tmp_path).close()
    path = stores.snapshot_files(tmp_path)[2]
    good = path.read_bytes()
    path.write_bytes(good[:20] + bytes([good[20] ^ 1]) + good[21:])
    manager = CheckpointManager(tmp_path)
    with pytest.warns(ckptz.CkptzWarning, match=path.name):
        assert_same(manager.restore(), manager.restore(1))
    assert manager.all_steps() == [0, 1]
    path.write_bytes(good)
    manager.reload()
    assert manager.all_steps() == [0, 1, 2, 3]
    assert_same(manager.restore(), TREES[3])


def test_two_stores_merged_into_one_directory(tmp_path: Path) -> None:
    begun(tmp_path / "a", 4).close()
    long = begun(tmp_path / "b", 6, first=3)
    expected = contents(long)
    long.close()
    for path in (tmp_path / "a").glob("*.ckptz"):
        shutil.copyfile(path, tmp_path / "b" / path.name)
    merged = CheckpointManager(tmp_path / "b")
    # The newest has the highest sequence number, and its own ancestors go before strangers.
    assert contents(merged) == expected
    assert_same(merged.restore(), TREES[8])
    merged.save(6, TREES[9])
    assert contents(CheckpointManager(tmp_path / "b"))[6] == stores.digest(TREES[9])
    assert merged.verify().ok


def test_a_delta_without_its_parent(tmp_path: Path) -> None:
    begun(tmp_path, full_every=0).close()
    stores.snapshot_files(tmp_path)[1].unlink()
    with pytest.warns(ckptz.CkptzWarning, match="2 snapshots cannot be restored"):
        manager = CheckpointManager(tmp_path)
    assert manager.all_steps() == [0]
    with pytest.raises(ckptz.MissingSnapshotError, match="there are 0"):
        manager.restore(3)
    report = manager.verify()
    assert [problem.step for problem in report.problems] == [2, 3]
    assert all("needs snapshot" in problem.what for problem in report.problems)
    # What cannot be restored may be saved again.
    manager.save(1, TREES[1])
    assert manager.all_steps() == [0, 1]
    assert_same(stores.fresh(tmp_path), TREES[1])


def test_a_snapshot_alone_in_a_directory(tmp_path: Path) -> None:
    manager = begun(tmp_path / "all", full_every=2)
    expected = stores.digest(manager.restore(2))
    (tmp_path / "one").mkdir()
    shutil.copy(stores.snapshot_files(tmp_path / "all")[2], tmp_path / "one")
    assert contents(CheckpointManager(tmp_path / "one")) == {2: expected}
    (tmp_path / "delta").mkdir()
    shutil.copy(stores.snapshot_files(tmp_path / "all")[3], tmp_path / "delta")
    with pytest.warns(ckptz.CkptzWarning, match="delta: 1 snapshot cannot be restored"):
        lonely = CheckpointManager(tmp_path / "delta")
    assert lonely.all_steps() == []
    with pytest.raises(ckptz.MissingSnapshotError, match="no snapshot can be restored"):
        lonely.restore()


# --- Odd places ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["with space", "größe 模型", "new\nline", "~0", "a*b?[c]", "-rf", ".hidden", "x" * 200]
)
def test_odd_names(tmp_path: Path, name: str) -> None:
    begun(tmp_path / name, 2).close()
    assert_same(stores.fresh(tmp_path / name), TREES[1])
    file = tmp_path / f"{name}.ckptz"
    ckptz.save_file(TREES[0], file)
    assert_same(ckptz.load_file(str(file)), TREES[0])
    with pytest.raises(ckptz.MissingSnapshotError) as found:
        CheckpointManager(tmp_path / name).restore(9)
    assert str(tmp_path / name) in str(found.value)


def test_a_name_that_is_not_unicode(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    begun(path, 2).close()
    assert_same(CheckpointManager(path).restore(), TREES[1])
    (Path(path) / os.fsdecode(b"\xff.ckptz")).write_bytes(b"junk")
    with pytest.warns(ckptz.CkptzWarning, match="skipped"):
        CheckpointManager(path)


def test_relative_paths_stay_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    manager = begun("run", 1)
    snapshot = manager.open()
    monkeypatch.chdir(tmp_path / "elsewhere")
    manager.save(1, TREES[1])
    assert_same(manager.restore(), TREES[1])
    assert snapshot["model/weight"].shape == (50, 8)
    assert manager.path == str(tmp_path / "run")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    manager.close()
    assert_same(stores.fresh(tmp_path / "run"), TREES[1])


def test_a_link_to_a_store(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    begun(tmp_path / "link").close()
    assert len(stores.snapshot_files(tmp_path / "real")) == 4
    assert_same(stores.fresh(tmp_path / "link"), TREES[3])
    with CheckpointManager(tmp_path / "real") as manager:
        manager.save(4, TREES[4])
        with pytest.raises(ckptz.StoreLockedError):
            CheckpointManager(tmp_path / "link").save(5, TREES[5])


def test_places_where_no_store_can_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    for path, error in [(file, NotADirectoryError), (file / "below", NotADirectoryError)]:
        with pytest.raises(error):
            CheckpointManager(path).save(0, TREES[0])
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        CheckpointManager(tmp_path / "dangling").save(0, TREES[0])
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.filterwarnings("ignore:.*which is not followed:ckptz.CkptzWarning")
def test_links_and_folders_with_names_of_snapshots_are_not_followed(tmp_path: Path) -> None:
    begun(tmp_path / "other").close()
    begun(tmp_path / "store", 1).close()
    secret = stores.snapshot_files(tmp_path / "other")[0]
    (tmp_path / "store" / "0000000007-link.ckptz").symlink_to(secret)
    (tmp_path / "store" / "0000000008-folder.ckptz").mkdir()
    os.mkfifo(tmp_path / "store" / "0000000009-pipe.ckptz")
    manager = CheckpointManager(tmp_path / "store")
    assert manager.all_steps() == [0]
    manager.save(1, TREES[1])
    assert manager.verify().ok


def test_a_store_of_links_is_warned_of(tmp_path: Path) -> None:
    stores.saved(tmp_path / "real", 1)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "notes").symlink_to("nowhere")
    for path in stores.snapshot_files(tmp_path / "real"):
        (tmp_path / "links" / path.name).symlink_to(path)
    with pytest.warns(ckptz.CkptzWarning, match="a symbolic link, which is not followed") as told:
        reader = ckptz.CheckpointManager(tmp_path / "links", readonly=True)
    assert len(told) == 1
    assert reader.all_steps() == []
    reader.reload()  # which says it no second time
