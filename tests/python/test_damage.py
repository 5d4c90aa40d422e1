"""Damage: every byte flipped, every length cut to; never other values, never another error."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager

ERRORS = (ckptz.FormatError, ckptz.MissingSnapshotError)


def tree(step: int) -> stores.State:
    return {
        "a": stores.weights(step, (20,)) + stores.weights(99, (20,)) * 9,
        "b": np.arange(24).reshape(4, 6) + step // 2,
        "c": [step, "text"],
        "d": stores.weights(step, (30,)).astype("f2") ** 2,
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps 0 (full), 1 and 2 (deltas), the last with a residual."""
    path = tmp_path_factory.mktemp("store")
    with CheckpointManager(path, threads=1) as manager:
        for step in range(3):
            manager.save(step, tree(step))
    assert len(list(path.iterdir())) == 5
    return path


def flips(size: int) -> Iterator[tuple[int, int]]:
    """Positions, each with a bit to flip: all of them in a campaign."""
    for at in range(size):
        for bit in range(8) if stores.MORE > 1 else [at % 8]:
            yield at, bit


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what becomes of a file, and how."""
    for at, bit in flips(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << bit
        yield f"bit {bit} of byte {at}", bytes(changed)
    for length in range(len(data)):
        yield f"cut to {length}", data[:length]
    yield "a byte more", data + b"\0"
    yield "twice", data + data


def replace(path: Path, data: bytes) -> None:
    draft = path.with_suffix(".part")
    draft.write_bytes(data)
    os.replace(draft, path)  # noqa: PTH105


def attempt(use: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a restore gives, an error too, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of whatever was before
        try:
            found = use()
        except ERRORS as error:
            found = error
    assert all(isinstance(one.message, ckptz.CkptzWarning) for one in caught)
    assert all(one.filename == __file__ for one in caught), [one.filename for one in caught]
    return found, [str(one.message) for one in caught]


def names_the_place(error: Exception, path: Path) -> None:
    """A message names the file and the offset in it."""
    assert path.name in str(error)
    assert re.search(r": offset \d+: ", str(error)), str(error)


@pytest.mark.parametrize("hit", [0, 1, 2])
def test_damage_to_a_snapshot(store: Path, hit: int) -> None:
    path = stores.snapshot_files(store)[hit]
    good = path.read_bytes()
    before = [stores.digest(stores.fresh(store, step=step)) for step in range(3)]
    try:
        for how, data in damaged(good):
            replace(path, data)
            manager, _ = attempt(lambda: CheckpointManager(store, readonly=True, threads=1))
            check_steps(manager, path, hit, before, how)
    finally:
        replace(path, good)
    assert CheckpointManager(store).verify().ok


def check_steps(
    manager: CheckpointManager, path: Path, hit: int, before: list[str], how: str
) -> None:
    # The newest first: what is damaged shows when it is read. Where nothing later needs it, it may
    # not show: the result is then right all the same.
    found, said = attempt(manager.restore)
    if isinstance(found, Exception):
        assert hit == 0, how
    elif stores.digest(found) != before[2]:
        assert stores.digest(found) == before[hit - 1], how
        assert said or manager._store.problems, how
    for step in range(3):
        found, _ = attempt(lambda: manager.restore(step))  # noqa: B023
        if step < hit or not isinstance(found, Exception):
            assert stores.digest(found) == before[step], how
        elif step == hit:
            names_the_place(found, path)
    report = manager.verify()
    assert not report.ok
    assert report.steps == list(range(hit)), how
    assert manager.all_steps() in (list(range(hit)), [0, 1, 2]), how
    assert path.name in {problem.file for problem in report.problems}


def test_damage_to_a_residual(store: Path) -> None:
    path = next(store.glob("*.residual.ckptz"))
    good = path.read_bytes()
    exact = stores.digest(stores.fresh(store))
    rebuilt = stores.digest(stores.fresh(store, residual=False))
    assert exact != rebuilt
    try:
        for how, data in damaged(good):
            replace(path, data)
            manager, opened = attempt(lambda: CheckpointManager(store, readonly=True, threads=1))
            found, said = attempt(manager.restore)
            assert stores.digest(found) == rebuilt, how
            assert any(path.name in text for text in opened + said), how
            assert manager.all_steps() == [0, 1, 2]
            report = manager.verify()
            assert report.steps == [0, 1, 2]
            assert {problem.file for problem in report.problems} == {path.name}, how
    finally:
        replace(path, good)
    assert stores.digest(stores.fresh(store)) == exact


def test_a_lost_residual(store: Path) -> None:
    path = next(store.glob("*.residual.ckptz"))
    rebuilt = stores.digest(stores.fresh(store, residual=False))
    manager = CheckpointManager(store, readonly=True)
    good = path.read_bytes()
    path.unlink()
    try:
        found, said = attempt(manager.restore)
        assert stores.digest(found) == rebuilt
        assert len(said) == 1
        assert said[0].startswith("the residual of step 2 is lost, the reconstruction is used: ")
        assert path.name in said[0]
    finally:
        path.write_bytes(good)


def test_damage_to_a_single_file(tmp_path: Path) -> None:
    path = tmp_path / "one.ckptz"
    ckptz.save_file(tree(1), path)
    good = path.read_bytes()
    expected = stores.digest(ckptz.load_file(path))
    for how, data in damaged(good):
        replace(path, data)
        found, said = attempt(lambda: ckptz.load_file(path, threads=1))
        if isinstance(found, Exception):
            assert isinstance(found, ckptz.FormatError), how
            names_the_place(found, path)
        else:  # The checksum of the payload is not needed to restore.
            assert stores.digest(found) == expected, how
        assert said == []


@pytest.mark.parametrize("hit", [0, 1, 2])
def test_damage_to_a_payload_names_the_tensor(store: Path, hit: int) -> None:
    path = stores.snapshot_files(store)[hit]
    good = path.read_bytes()
    at = 16
    stats = CheckpointManager(store, readonly=True).stats(hit)
    right = [stores.digest(stores.fresh(store, step=s, residual=False)) for s in range(3)]
    try:
        for name, tensor in stats.tensors.items():
            place = range(at, at + tensor.bytes - tensor.header_bytes + 1)
            for at in place[:-1]:
                replace(path, good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
                names_the_tensor(store, hit, path, name, place, right)
            at = place[-1]
    finally:
        replace(path, good)
    assert at > 30


def names_the_tensor(
    store: Path, hit: int, path: Path, name: str, place: range, right: list[str]
) -> None:
    """Whichever step is asked for, the file that is damaged is named."""
    for step in (2, hit):
        manager = CheckpointManager(store, readonly=True, threads=1)
        found, _ = attempt(lambda: manager.restore(step, residual=False))  # noqa: B023
        if not isinstance(found, Exception):
            # It does not need what is damaged (of a zstd frame one bit has no meaning).
            assert stores.digest(found) == right[step]
            continue
        assert type(found) in (ckptz.FormatError, ckptz.ChecksumError)
        pattern = re.escape(str(path)) + r": offset (\d+): tensor (.*): chunk 0[,:] .*"
        where = re.fullmatch(pattern, str(found))
        assert where, str(found)
        assert where[2] == name
        assert int(where[1]) in place


def near(step: int) -> stores.Array:
    return np.asarray(stores.weights(99, (500,)) + np.float32(0.01) * stores.weights(step, (500,)))


def test_damage_is_found_in_the_layer_where_it_is(tmp_path: Path) -> None:
    """One pass finds the culprit in a long chain; what came before it is restored at once."""
    with CheckpointManager(tmp_path, full_every=0, exact="none", threads=1) as manager:
        for step in range(12):
            manager.save(step, {"w": near(step)})
    expected = stores.digest(stores.fresh(tmp_path, step=4))
    path = stores.snapshot_files(tmp_path)[5]
    data = bytearray(path.read_bytes())
    data[30] ^= 4
    replace(path, bytes(data))
    manager = CheckpointManager(tmp_path)
    found, said = attempt(manager.restore)
    assert stores.digest(found) == expected
    assert len(said) == 1
    assert path.name in said[0]
    assert manager.all_steps() == [0, 1, 2, 3, 4]
    # Training goes on from there.
    manager.save(5, {"w": near(5)})
    assert CheckpointManager(tmp_path).all_steps() == [0, 1, 2, 3, 4, 5]
    assert stores.arrays_of(stores.fresh(tmp_path, residual=False)) == stores.base_of(manager)


def test_a_damaged_step_may_be_saved_again(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path) as manager:
        for step in range(3):
            manager.save(step, tree(step))
        newest = stores.snapshot_files(tmp_path)[2]
        data = bytearray(newest.read_bytes())
        data[20] ^= 1
        newest.write_bytes(data)
        found, said = attempt(lambda: manager.save(2, tree(2)))
        assert isinstance(found, ckptz.SaveFuture)
        assert any("is damaged and will be saved anew" in text for text in said)
        assert stores.digest(manager.restore()) == stores.digest(tree(2))
    assert stores.digest(stores.fresh(tmp_path)) == stores.digest(tree(2))


def test_nothing_at_all_is_left(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, full_every=2) as manager:
        for step in range(3):
            manager.save(step, tree(step))
    for path in tmp_path.glob("*.ckptz"):
        path.write_bytes(path.read_bytes()[:-1])
    manager, said = attempt(lambda: CheckpointManager(tmp_path))
    assert len(said) == len(list(tmp_path.glob("*.ckptz")))
    found, _ = attempt(manager.restore)
    assert isinstance(found, ckptz.MissingSnapshotError)
    assert "no snapshot can be restored: " in str(found)
    for step in range(3):
        found, _ = attempt(lambda: manager.restore(step))  # noqa: B023
        assert isinstance(found, ckptz.MissingSnapshotError)
        assert re.search(f"{step:010d}-.*: offset \\d+: ", str(found))
    manager.save(0, tree(0))
    reopened, _ = attempt(lambda: CheckpointManager(tmp_path))
    assert reopened.all_steps() == [0]


@pytest.mark.parametrize("junk", [b"", b"\0" * 100, b"\x89CKPTZ\r\n", b"PTZ\n" * 30])
def test_files_that_are_none(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "junk.ckptz"
    path.write_bytes(junk)
    for use in (ckptz.load_file, ckptz.safe_open):
        with pytest.raises(ckptz.FormatError) as found:
            use(path)
        names_the_place(found.value, path)
    with pytest.warns(ckptz.CkptzWarning, match="skipped"):
        assert CheckpointManager(tmp_path).all_steps() == []
