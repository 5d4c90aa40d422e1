"""Files that cannot be read, for now or for good, and more than may be open."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import ckptz
import pytest
import stores
from ckptz import CheckpointManager
from stores import begun
from trees import assert_same

TREES = list(stores.training(10))


def failing_read(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Have reads of one file fail, as on a disk with bad sectors."""
    real = os.preadv

    def preadv(descriptor: int, views: Any, at: int) -> int:
        if name in os.readlink(f"/proc/self/fd/{descriptor}"):  # noqa: PTH115
            raise OSError(number, os.strerror(number))
        return real(descriptor, views, at)

    monkeypatch.setattr(os, "preadv", preadv)


def test_a_newest_file_that_cannot_be_read_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = begun(tmp_path)
    manager.close()
    newest = stores.snapshot_files(tmp_path)[3].name
    with monkeypatch.context() as patch:
        failing_read(patch, newest, errno.EIO)
        with pytest.warns(ckptz.CkptzWarning, match="skipped: .*Input/output error"):
            reader = CheckpointManager(tmp_path)
        assert reader.all_steps() == [0, 1, 2]
        with pytest.warns(ckptz.CkptzWarning, match="Input/output error"):
            assert_same(manager.restore(), reader.restore(2))
        with pytest.raises(OSError, match="Input/output error"):
            manager.restore(3)
    # It was not the file's fault.
    reader.reload()
    for store in (manager, reader):
        assert_same(store.restore(), TREES[3])


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
def test_a_save_while_the_newest_cannot_be_read_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(tmp_path).close()
    newest = stores.snapshot_files(tmp_path)[3].name
    manager = CheckpointManager(tmp_path)
    with monkeypatch.context() as patch:
        failing_read(patch, newest, errno.EIO)
        # It is there as far as the store knows; the base cannot be had: a full snapshot, after it.
        manager.save(4, TREES[4])
    assert manager.stats(4).kind == "full"
    assert CheckpointManager(tmp_path).all_steps() == [0, 1, 2, 3, 4]
    manager.close()
    # Not even known to be there: the new one has a sequence number of its own all the same.
    newest = stores.snapshot_files(tmp_path)[4].name
    with monkeypatch.context() as patch:
        failing_read(patch, newest, errno.EIO)
        with CheckpointManager(tmp_path) as manager:
            manager.save(5, TREES[5])
    again = CheckpointManager(tmp_path)
    assert again.all_steps() == [0, 1, 2, 3, 5]
    assert_same(again.restore(), TREES[5])


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_shortage_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    begun(tmp_path).close()
    manager = CheckpointManager(tmp_path)
    with monkeypatch.context() as patch:
        real = os.open

        def refused(path: Any, *arguments: Any, **options: Any) -> int:
            if str(path).endswith(".ckptz"):
                raise OSError(number, os.strerror(number))
            return real(path, *arguments, **options)

        patch.setattr(os, "open", refused)
        for use in (manager.restore, manager.open, lambda: manager.save(4, TREES[4])):
            with pytest.raises(OSError) as found:  # noqa: PT011
                use()
            assert found.value.errno == number
        with pytest.raises(OSError):  # noqa: PT011
            CheckpointManager(tmp_path)
    assert_same(manager.restore(), TREES[3])
    manager.save(4, TREES[4])
    assert manager.all_steps() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_a_shortage_while_a_residual_is_read_never_gives_lossy_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    manager = begun(tmp_path)
    with manager.open() as snapshot:
        with monkeypatch.context() as patch:
            failing_read(patch, ".residual.ckptz", number)
            with pytest.raises(OSError) as found:  # noqa: PT011
                snapshot["model/weight"].numpy()
            assert found.value.errno == number
        assert_same(snapshot["model/weight"].numpy(), TREES[3]["model"]["weight"])


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_shortage_while_a_store_is_verified_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    manager = begun(tmp_path, 3)
    real = os.open
    granted = opened = 0

    def limited(path: Any, *arguments: Any, **options: Any) -> int:
        nonlocal opened
        if str(path).endswith(".ckptz"):
            opened += 1
            if opened > granted:
                raise OSError(number, os.strerror(number))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", limited)
    # Wherever it comes: among the payloads, in a chain, at the residual.
    while True:
        opened = 0
        try:
            assert manager.verify().ok
        except OSError as error:
            assert error.errno == number  # noqa: PT017
            granted += 1
        else:
            break
        assert manager.all_steps() == [0, 1, 2]
    assert granted >= 4 + 3 + 4


def test_a_chain_longer_than_a_process_may_have_files_open(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, full_every=0, exact="none")
    for step in range(400):
        manager.save(step, {"w": stores.weights(step, (20,)), "n": step})
    base = stores.base_of(manager)
    manager.close()
    code = """
import resource, sys, ckptz, stores
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
manager = ckptz.CheckpointManager(sys.argv[1], full_every=0)
print(stores.digest(manager.restore()), manager.stats().restore_files)
with manager.open() as snapshot:
    assert snapshot["w"][3:5].shape == (2,)
manager.save(400, {"w": stores.weights(1, (20,)), "n": 400})
print(manager.verify().ok, manager.stats().kind)
"""
    said = stores.run_python(code, tmp_path).stdout.split()
    restored = stores.fresh(tmp_path, step=399, residual=False)
    assert stores.arrays_of(restored) == base
    assert said == [stores.digest(restored), "400", "True", "delta"]
