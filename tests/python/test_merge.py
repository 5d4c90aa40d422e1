"""Merging: the same bits from fewer files, in bounded memory, whatever is damaged or dropped."""

from __future__ import annotations

import shutil
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import ckptz
import evolving
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager
from ckptz.file import FileReader
from ckptz.storage import Reader
from hypothesis import given
from hypothesis import strategies as st
from retained import TREES, check, train

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import read_ckptz


def check_plain(manager: CheckpointManager) -> None:
    """Check that the reader in plain Python restores the same."""
    store = read_ckptz.Store(manager.path)
    assert store.steps() == manager.all_steps()
    for step in manager:
        flat = manager.restore(step, keys="*", residual=False, as_numpy=True)
        plain = store.restore(step, residual=False)
        for path, value in flat.items():
            if isinstance(value, np.ndarray):
                assert np.asarray(plain[path]).tobytes() == value.tobytes(), (step, path)
            else:
                assert repr(plain[path]) == repr(value), (step, path)


def files_read(manager: CheckpointManager) -> list[int]:
    return [manager.stats(step).restore_files for step in manager]


@pytest.mark.filterwarnings("error")
def test_all_deltas_of_each_full_snapshot(tmp_path: Path) -> None:
    manager, bases = train(tmp_path, 11, full_every=5)
    payload = sum(len(data) for data in stores.files(tmp_path).values())
    names = manager.merge()
    assert len(names) == 2
    check(manager, bases, list(range(11)))
    check_plain(manager)
    assert files_read(manager) == [1, 2, 2, 2, 2, 1, 2, 2, 2, 2, 1]
    # Fulls 0, 5 and 10, two merged files, no residual: step 10 is exact.
    assert len(stores.files(tmp_path)) == 5
    assert sum(len(data) for data in stores.files(tmp_path).values()) < payload
    assert manager.merge() == []
    # The base has not been lost: the next one is a delta, and needs no reading.
    manager.save(11, TREES[11])
    assert manager.stats(11).kind == "delta"
    bases[11] = stores.base_of(manager)
    check(manager, bases, list(range(12)))


def test_some_steps(tmp_path: Path) -> None:
    manager, bases = train(tmp_path, 10)
    ids = {step: manager.stats(step).id for step in manager}
    sizes = {step: manager.stats(step).bytes for step in manager}
    assert len(manager.merge([3, 4, 5])) == 1
    assert manager.merge(range(3, 6)) == []
    assert len(manager.merge([5, 6])) == 1
    assert len(manager.merge([0, 9])) == 1
    check(manager, bases, list(range(10)))
    check_plain(manager)
    assert {step: manager.stats(step).id for step in manager} == ids
    assert len(stores.snapshot_files(tmp_path)) == 6
    for step, size in sizes.items():
        # Of its file before: less header and footer, now perhaps with a schema of its own.
        assert abs(manager.stats(step).bytes - size) < 400
    with pytest.raises(ckptz.MissingSnapshotError, match="no snapshot of step 77"):
        manager.merge([1, 77])
    with pytest.raises(ckptz.MissingSnapshotError, match="no steps to merge"):
        manager.merge([])


@pytest.mark.parametrize("keep", [None, 4])
@pytest.mark.parametrize("most", [3, 4, 6])
def test_the_number_of_files_is_held(tmp_path: Path, most: int, keep: int | None) -> None:
    manager = CheckpointManager(tmp_path, full_every=15, max_files=most, max_to_keep=keep)
    bases = {}
    for step, tree in enumerate(TREES):
        manager.save(step, tree)
        bases[step] = stores.base_of(manager)
        assert max(files_read(manager)) <= most
        assert stores.digest(stores.fresh(tmp_path)) == stores.digest(tree)
    assert manager.stats(len(TREES) - 1).kind == "delta"
    check(manager, bases, list(range(len(TREES)))[-(keep or 99) :])
    check_plain(manager)


def test_each_byte_is_copied_a_few_times_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0
    from ckptz.file import FileWriter

    real = FileWriter.write_payload

    def count(self: FileWriter, data: Any, **how: bool) -> None:
        nonlocal written
        written += data.size
        real(self, data, **how)

    monkeypatch.setattr(FileWriter, "write_payload", count)
    with CheckpointManager(tmp_path / "plain", full_every=0, exact="none") as manager:
        for step in range(120):
            manager.save(step, TREES[step % 24])
    once, written = written, 0
    options: dict[str, Any] = {"full_every": 0, "exact": "none", "max_files": 10}
    with CheckpointManager(tmp_path / "merged", **options) as manager:
        for step in range(120):
            manager.save(step, TREES[step % 24])
        assert max(files_read(manager)) <= 9
    assert written < 5 * once


def test_layers_of_dropped_steps_that_add_nothing_go(tmp_path: Path) -> None:
    """Tensors that are stored anew in every snapshot: of dropped steps nothing is needed."""
    noise = [stores.weights(seed, (4000,)) for seed in range(8)]
    manager = CheckpointManager(tmp_path, "exact", full_every=0)
    for step, array in enumerate(noise):
        manager.save(step, {"new": array, "adds": np.arange(300) + step, "n": step})
    before = sum(len(data) for data in stores.files(tmp_path).values())
    for step in range(2, 7):
        manager.delete(step)
    manager.merge([1, 7])
    after = sum(len(data) for data in stores.files(tmp_path).values())
    assert after < 0.45 * before
    for step in (0, 1, 7):
        assert manager.restore(step)["new"].tobytes() == noise[step].tobytes()
    assert manager.all_steps() == [0, 1, 7]
    assert manager.verify().ok
    check_plain(manager)
    assert not list(tmp_path.glob("*.hidden"))
    # What has been left out cannot be brought back by hand.
    store = manager._store
    hidden = next(entry for entry in store.entries.values() if entry.missing)
    with pytest.raises(ckptz.FormatError, match="have been left out of the file"):
        ckptz.restore.OpenChain.of_store(store, hidden)


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
@stores.examples(25)
@given(st.data(), evolving.policies(), st.integers(0, 4))
def test_random_states(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, policy: Any, full_every: int
) -> None:
    path = tmp_path_factory.mktemp("store")
    manager = CheckpointManager(path, policy, full_every=full_every, threads=1)
    tree = evolving.beginning(data.draw(st.integers(0, 99)))
    bases = {}
    for step in range(data.draw(st.integers(2, 7))):
        for change in data.draw(evolving.changes()):
            tree = evolving.apply(tree, change)
        manager.save(step, tree)
        bases[step] = stores.base_of(manager)
        if data.draw(st.integers(0, 2)) == 0:
            steps = manager.all_steps()
            gone = data.draw(st.lists(st.sampled_from(steps), unique=True, max_size=len(steps)))
            for victim in set(gone) - {step}:
                manager.delete(victim)
                del bases[victim]
            manager.merge(data.draw(st.sampled_from([None, manager.all_steps()])))
        check(manager, bases, sorted(bases))
    check_plain(manager)
    manager.close()


# --- Damage ---------------------------------------------------------------------------------------


def test_damaged_sources_are_not_merged(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 6)
    path = stores.snapshot_files(tmp_path)[3]
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    before = stores.files(tmp_path)
    manager.reload()
    with pytest.raises(ckptz.ChecksumError, match=path.name):
        manager.merge()
    assert stores.files(tmp_path) == before


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
def test_damage_in_a_merged_file_hides_only_what_needs_it(tmp_path: Path) -> None:
    manager, bases = train(tmp_path / "good", 8)
    name = manager.merge()[0]
    with Reader(tmp_path / "good" / name) as source:
        payload = FileReader(source).payload_bytes
    manager.close()
    seen = set()
    for at in range(16, 16 + payload, max(1, payload // 60)):
        bad = tmp_path / "bad"
        shutil.copytree(tmp_path / "good", bad)
        data = bytearray((bad / name).read_bytes())
        data[at] ^= 1 << at % 8
        (bad / name).write_bytes(data)
        reader = CheckpointManager(bad, readonly=True)
        good: list[int] = []
        for step in range(8):
            try:
                found = stores.arrays_of(reader.restore(step, residual=False))
            except ckptz.MissingSnapshotError:
                assert step > len(good)  # for the damage of an earlier one is known
            except ckptz.FormatError as error:
                assert name in str(error)  # noqa: PT017
            else:
                assert found == bases[step]
                good.append(step)
        assert good == list(range(len(good)))
        seen.add(len(good))
        assert not CheckpointManager(bad, readonly=True).verify().ok
        with CheckpointManager(bad) as manager:
            manager.save(9, TREES[9])
            assert stores.digest(manager.restore()) == stores.digest(TREES[9])
        shutil.rmtree(bad)
    assert seen >= {1, 4, 7}


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
def test_every_cut_of_a_merged_file(tmp_path: Path) -> None:
    manager, bases = train(tmp_path, 5)
    name = manager.merge()[0]
    data = (tmp_path / name).read_bytes()
    for length in range(0, len(data), 37):
        (tmp_path / name).write_bytes(data[:length])
        reader = CheckpointManager(tmp_path, readonly=True)
        assert reader.all_steps() == [0]
    (tmp_path / name).write_bytes(data)
    manager.reload()
    check(manager, bases, [0, 1, 2, 3, 4])


# --- Beside others, and memory --------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_readers_beside_merges_and_deletions(tmp_path: Path) -> None:
    writer = CheckpointManager(tmp_path, full_every=9, max_to_keep=4, max_files=4)
    writer.save(0, TREES[0])
    digests = {stores.digest(tree): step for step, tree in enumerate(TREES)}
    failures: list[BaseException] = []
    done = threading.Event()

    def looking() -> None:
        reader = CheckpointManager(tmp_path, readonly=True, threads=1)
        newest = -1
        try:
            while not done.is_set():
                step = digests[stores.digest(reader.restore())]
                assert step >= newest
                newest = step
                for step in reader.all_steps():
                    try:
                        reader.restore(step)
                    except ckptz.MissingSnapshotError:
                        continue
        except BaseException as error:
            failures.append(error)

    lookers = [threading.Thread(target=looking) for _ in range(2)]
    for looker in lookers:
        looker.start()
    for step in range(1, 24):
        writer.save(step, TREES[step])
    done.set()
    for looker in lookers:
        looker.join()
    assert failures == []


def test_an_open_snapshot_outlives_a_merge(tmp_path: Path) -> None:
    manager, _ = train(tmp_path, 6)
    with manager.open(4) as snapshot:
        expected = manager.restore(4)["model"]["weight"]
        manager.merge()
        assert snapshot["model/weight"][:].tobytes() == expected.tobytes()


def test_a_reader_that_is_behind_finds_what_has_moved(tmp_path: Path) -> None:
    manager, bases = train(tmp_path, 6)
    reader = CheckpointManager(tmp_path, readonly=True)
    manager.merge()
    check(reader, bases, [0, 1, 2, 3, 4, 5])


def test_memory_is_bounded(tmp_path: Path) -> None:
    """As many bytes as a few pieces, whatever the state has."""
    manager = CheckpointManager(tmp_path, "exact", full_every=0)
    for step in range(4):
        manager.save(step, {"w": stores.weights(step, (3_000_000,))})
    sizes = [len(data) for data in stores.files(tmp_path).values()]
    assert sum(sizes) > 39e6
    tracemalloc.start()
    manager.merge()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24e6
    for step in range(4):
        found = manager.restore(step)["w"]
        assert found.tobytes() == stores.weights(step, (3_000_000,)).tobytes()
