"""What a save does in which order, and what it leaves behind."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ckptz import CheckpointManager
from faults import CALLS
from test_durable import tree, with_three
from trees import assert_same


def test_calls_of_a_save_come_in_the_order_that_makes_it_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, manager = with_three(tmp_path)
    events: list[str] = []
    paths: dict[int, str] = {}

    def kind(path: object) -> str:
        name = Path(str(path)).name
        if name == "store":
            return "directory"
        middle = "residual" if name.endswith(".residual.ckptz") else "snapshot"
        return "draft" if name.startswith(".tmp-") else f"{middle} {name[:10].lstrip('0') or '0'}"

    def recording(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            found = real(*arguments, **options)
            if name == "open":
                paths[found] = kind(arguments[0])
            elif name == "fsync":
                events.append(f"fsync {paths[arguments[0]]}")
            elif name in ("rename", "unlink"):
                events.append(f"{name} {kind(arguments[-1])}")
            return found

        return call

    with monkeypatch.context() as patch:
        for module, name in CALLS:
            patch.setattr(module, name, recording(name, getattr(module, name)))
        manager.save(3, tree(3))
    assert events == [
        "fsync draft",
        "fsync draft",
        "rename residual 3",
        "fsync directory",
        "rename snapshot 3",
        "fsync directory",
        "unlink residual 2",
    ]
    assert store.path.is_dir()


def test_a_new_store_s_directories_are_synced_in_their_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    from ckptz.storage import files, local

    def sync(path: Path) -> None:
        synced.append(path)
        files.sync_directory(path)

    monkeypatch.setattr(local, "sync_directory", sync)
    path = tmp_path / "a" / "b"
    manager = CheckpointManager(path)
    manager.save(0, tree(0))
    assert set(synced) == {tmp_path.parent, tmp_path, tmp_path / "a", path}
    # Whoever made the directory may have died before its parent was synced.
    manager.close()
    synced.clear()
    CheckpointManager(path).save(1, tree(1))
    assert synced == [path.parent, *[path] * 2]


def test_a_failed_sync_is_never_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, manager = with_three(tmp_path)
    synced: list[int] = []

    def failing(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(OSError, match="Input/output") as found:
            manager.save(3, tree(3))
    assert found.value.filename == str(tmp_path / "store")
    assert len(synced) == 1


def test_file_systems_that_cannot_sync_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def picky(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", picky)
    store, _ = with_three(tmp_path)
    store.check()


def test_what_a_dead_writer_has_left_is_deleted(tmp_path: Path) -> None:
    store, manager = with_three(tmp_path)
    manager.close()
    (store.path / ".tmp-1-00000000000dead0").write_bytes(b"half a file")
    (store.path / ".tmp-2-00000000000dead0").write_bytes(b"")
    (store.path / "notes.txt").write_text("not ours")
    store.check()
    # Reading leaves it alone.
    assert len(list(store.path.glob(".tmp-*"))) == 2
    with CheckpointManager(store.path) as manager:
        store.save(manager, 3, tree(3))
    assert not list(store.path.glob(".tmp-*"))
    assert (store.path / "notes.txt").read_text() == "not ours"
    store.check()


def test_an_orphaned_residual_is_ignored_and_deleted(tmp_path: Path) -> None:
    """A crash between the renames of residual and snapshot leaves the residual alone."""
    store, manager = with_three(tmp_path)
    manager.save(3, tree(3))
    manager.close()
    next(store.path.glob("0000000003-????????????????.ckptz")).unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with CheckpointManager(store.path) as manager:
            assert manager.all_steps() == [0, 1, 2]
            assert manager.verify().ok
            manager.save(3, tree(3))
            assert_same(manager.restore(), tree(3))
    assert len(list(store.path.glob("*.residual.ckptz"))) == 1
