"""`save_file`, `load_file`, `safe_open`: one state in one file."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import ckptz
import evolving
import numpy as np
import pytest
import stores
from faults import ERRORS, Fault
from hypothesis import given
from trees import Point, assert_same, trees

TREE = {"w": stores.weights(0), "n": [1, "x"], "t": (np.arange(3), None)}


@stores.examples(80)
@given(tree=trees())
def test_any_state_comes_back(tmp_path_factory: pytest.TempPathFactory, tree: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.ckptz"
    try:
        ckptz.save_file(tree, path)
    except ValueError:
        # Of the core, for float tensors without entries (see test_cases_arrays.py).
        assert not evolving.empty_floats_work()
        return
    assert_same(ckptz.load_file(path, types=[Point]), tree)
    with ckptz.safe_open(path) as snapshot:
        assert all(view.numpy().nbytes == view.nbytes for view in snapshot.values())


def test_a_file_is_exact_and_full_and_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with stores.clock():
            ckptz.save_file(TREE, tmp_path / name, threads=1 + (name == "b"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert_same(ckptz.load_file(tmp_path / "a", threads=2), TREE)


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "one"
    ckptz.save_file(TREE, path)
    old = open(path, "rb")  # noqa: SIM115
    ckptz.save_file({"w": 1}, path)
    assert ckptz.load_file(path) == {"w": 1}
    assert len(old.read()) > 1000
    old.close()
    assert [one.name for one in tmp_path.iterdir()] == ["one"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", ERRORS)
def test_every_call_fails(tmp_path: Path, error: Any, after: bool) -> None:
    path = tmp_path / "one"
    ckptz.save_file({"old": 1}, path)
    for number in range(1, 100):
        fault = Fault(number, error(), after)
        with fault.armed():
            try:
                ckptz.save_file(TREE, path)
            except BaseException as found:
                assert type(found) is type(fault.error)  # noqa: PT017
                failed = True
            else:
                failed = False
        names = [one.name for one in tmp_path.iterdir()]
        assert names == ["one"] or (fault.fired == "open" and after) or fault.fired == "unlink"
        found_tree = ckptz.load_file(path)
        if found_tree != {"old": 1}:
            # Renamed already: only the directory's sync was still to come.
            assert_same(found_tree, TREE)
            ckptz.save_file({"old": 1}, path)
        if not fault.fired:
            break
        for left in tmp_path.glob(".new-*"):
            left.unlink()
    assert not failed
    assert number > 8


def test_what_is_not_stored_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "one"
    ckptz.save_file(TREE, path)
    with pytest.raises(ckptz.UnsupportedTypeError, match=r"^a/b: cannot store"):
        ckptz.save_file({"a": {"b": object()}}, path)
    assert_same(ckptz.load_file(path), TREE)
    assert [one.name for one in tmp_path.iterdir()] == ["one"]


def test_places_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        ckptz.save_file(TREE, tmp_path / "folder")
    with pytest.raises(FileNotFoundError):
        ckptz.save_file(TREE, tmp_path / "nowhere" / "one")
    with pytest.raises(FileNotFoundError):
        ckptz.load_file(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        ckptz.load_file(tmp_path / "folder")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError) as found:  # noqa: PT011
        ckptz.load_file(tmp_path / "loop")
    assert found.value.errno == errno.ELOOP
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        ckptz.save_file(TREE, tmp_path / "pipe")
    with pytest.raises(ckptz.FormatError, match="the file is empty"):
        ckptz.load_file(tmp_path / "pipe")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder", "loop", "pipe"]


def test_a_link_to_a_file_is_read_through(tmp_path: Path) -> None:
    ckptz.save_file(TREE, tmp_path / "one")
    (tmp_path / "link").symlink_to("one")
    assert_same(ckptz.load_file(tmp_path / "link"), TREE)


def test_keys_types_and_numpy(tmp_path: Path) -> None:
    path = tmp_path / "one"
    ckptz.save_file({"a": {"w": TREE["w"], "p": Point(1, 2)}, "b": 3}, path)
    assert_same(ckptz.load_file(path, keys="a/*"), {"a/w": TREE["w"], "a/p/x": 1, "a/p/y": 2})
    assert type(ckptz.load_file(path, types=[Point])["a"]["p"]) is Point
    with pytest.raises(ckptz.MissingSnapshotError, match="no key path matches 'x'"):
        ckptz.load_file(path, keys="x")
    with pytest.raises(TypeError, match="is not a class of named tuples"):
        ckptz.load_file(path, types=[int])
    found = ckptz.load_file(path, like={"a": {"w": np.zeros((64, 8), "f8")}}, cast=True)
    assert found["a"]["w"].dtype == np.float64
    with pytest.raises(ValueError, match="like and keys do not go together"):
        ckptz.load_file(path, like={}, keys="*")


def test_a_snapshot_of_a_store_as_a_file(tmp_path: Path) -> None:
    with ckptz.CheckpointManager(tmp_path) as manager:
        for step in range(2):
            manager.save(step, {"w": stores.weights(step)})
    full, delta = stores.snapshot_files(tmp_path)
    assert_same(ckptz.load_file(full), {"w": stores.weights(0)})
    residual = next(tmp_path.glob("*.residual.ckptz"))
    for path in (delta, residual):
        with pytest.raises(ckptz.FormatError, match="needs other files of its store"):
            ckptz.load_file(path)
    # And the other way round: a file in an empty directory is a store of one snapshot.
    (tmp_path / "new").mkdir()
    ckptz.save_file(TREE, tmp_path / "new" / "any name.ckptz")
    with ckptz.CheckpointManager(tmp_path / "new") as manager:
        assert manager.all_steps() == [0]
        assert_same(manager.restore(), TREE)
        manager.save(1, TREE)
        assert manager.stats(1).kind == "delta"


def test_saving_beside_a_store_s_writer(tmp_path: Path) -> None:
    """A draft of another file in the store's directory is not taken for a dead writer's."""
    with ckptz.CheckpointManager(tmp_path) as manager:
        manager.save(0, TREE)
        for step in range(1, 4):
            ckptz.save_file(TREE, tmp_path / "export.bin")
            manager.save(step, TREE)
        assert_same(ckptz.load_file(tmp_path / "export.bin"), TREE)


def test_a_clock_before_1970(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("time.time_ns", lambda: -1_000_000_000)
        ckptz.save_file({"n": 1}, tmp_path / "x.ckptz")
    assert ckptz.load_file(tmp_path / "x.ckptz") == {"n": 1}


def test_a_link_stays_one(tmp_path: Path) -> None:
    target = tmp_path / "disk" / "one"
    target.parent.mkdir()
    link = tmp_path / "link"
    link.symlink_to(target)
    for tree in ({"n": 1}, {"n": 2}):  # of which the first makes the file
        ckptz.save_file(tree, link)
        assert link.is_symlink()
        assert ckptz.load_file(target) == tree
    os.mkfifo(tmp_path / "pipe")
    for name in ("to a pipe", "loop"):
        (tmp_path / name).symlink_to("pipe" if name != "loop" else "loop")
        with pytest.raises(OSError, match="not a regular file"):
            ckptz.save_file(TREE, tmp_path / name)
    with pytest.raises(ValueError, match="an empty path"):
        ckptz.save_file(TREE, "")


def test_a_file_that_is_saved_into_a_store_is_none_of_its_steps(tmp_path: Path) -> None:
    manager = stores.saved(tmp_path, 5, 6)
    ckptz.save_file({"other": 1}, tmp_path / "final.ckptz")
    (tmp_path / f".new-7-{'0' * 16}").write_bytes(b"one that is being saved by another process")
    manager.save(7, stores.small(7))
    for reader in (manager, ckptz.CheckpointManager(tmp_path, readonly=True)):
        assert reader.all_steps() == [5, 6, 7]
        assert_same(reader.restore(), stores.small(7))
        report = reader.verify()
        assert report.ok
        assert report.steps == [5, 6, 7]
    assert ckptz.load_file(tmp_path / "final.ckptz") == {"other": 1}
    assert len(list(tmp_path.glob(".new-*"))) == 1


def test_a_store_may_begin_with_a_single_file(tmp_path: Path) -> None:
    ckptz.save_file(TREE, tmp_path / "start.ckptz")
    manager = ckptz.CheckpointManager(tmp_path)
    manager.save(1, stores.small(1))
    assert manager.all_steps() == [0, 1]
    assert_same(stores.fresh(tmp_path, step=0), TREE)
