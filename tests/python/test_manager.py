"""`CheckpointManager`: steps, generations, lines, options and errors, as api.md has them."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager
from trees import assert_same


def small(value: float = 0.0) -> stores.State:
    return {"w": np.full(40, value, "f4"), "n": value}


def saved(path: Path, *steps: int, **options: Any) -> CheckpointManager:
    manager = CheckpointManager(path, **options)
    for step in steps:
        manager.save(step, small(step))
    return manager


# --- Steps ---------------------------------------------------------------------------------------


def test_steps_are_in_numeric_order(tmp_path: Path) -> None:
    manager = saved(tmp_path, 9, 10, 99, 100, 1000)
    assert manager.all_steps() == [9, 10, 99, 100, 1000]
    assert list(manager) == manager.all_steps()
    assert manager.latest_step() == 1000
    assert repr(manager) == f"CheckpointManager({str(tmp_path)!r}, steps=[9, 10, 99, 100, 1000])"


@pytest.mark.parametrize("step", [0, 2**63 - 1, 10**10])
def test_the_smallest_and_largest_step(tmp_path: Path, step: int) -> None:
    saved(tmp_path, step).close()
    manager = CheckpointManager(tmp_path)
    assert manager.all_steps() == [step]
    assert manager.restore(step)["n"] == step
    if step == 2**63 - 1:
        with pytest.raises(ckptz.StepExistsError):
            manager.save(step, small())
        manager.save(step, small(1), overwrite=True)
        assert manager.restore()["n"] == 1


def test_numbers_of_other_types_that_are_integers_are_steps(tmp_path: Path) -> None:
    manager = saved(tmp_path, np.int64(3))  # type: ignore[arg-type]
    assert manager.all_steps() == [3]
    assert type(manager.all_steps()[0]) is int
    assert manager.restore(np.uint8(3))["n"] == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [-1, 2**63, 1.0, "1", True, None, np.float64(1)])
def test_what_is_no_step(tmp_path: Path, step: Any) -> None:
    manager = saved(tmp_path, 1)
    with pytest.raises(ValueError, match="is not an integer from 0 to 2\\^63 - 1"):
        manager.save(step, small())
    if step is not None:
        for use in (manager.restore, manager.open, manager.stats):
            with pytest.raises(ValueError, match="is not an integer"):
                use(step)


def test_a_step_that_is_there_and_one_below(tmp_path: Path) -> None:
    manager = saved(tmp_path, 5, 7)
    before = stores.files(tmp_path)
    with pytest.raises(ckptz.StepExistsError, match="step 7 is there already"):
        manager.save(7, small(1))
    with pytest.raises(ckptz.StepExistsError, match="step 5 is there already"):
        manager.save(5, small(1))
    with pytest.raises(ckptz.StepOrderError, match="step 6 is not above the newest, 7"):
        manager.save(6, small(1))
    assert stores.files(tmp_path) == before
    manager.save(8, small(8))
    assert manager.all_steps() == [5, 7, 8]


def test_a_missing_step_names_what_is_there(tmp_path: Path) -> None:
    manager = saved(tmp_path, 1, 2)
    for use in (manager.restore, manager.open, manager.stats):
        with pytest.raises(ckptz.MissingSnapshotError) as found:
            use(3)
        assert str(found.value) == (
            f"{tmp_path}: no snapshot of step 3 can be restored; there are 1, 2"
        )
        assert isinstance(found.value, LookupError)
    many = saved(tmp_path / "many", *range(20))
    with pytest.raises(ckptz.MissingSnapshotError, match=r"there are 0, 1, 2, 3, \.\. 17, 18, 19$"):
        many.restore(99)


def test_an_empty_store(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path / "new")
    assert manager.all_steps() == []
    assert manager.latest_step() is None
    assert not (tmp_path / "new").exists()
    for use in (manager.restore, manager.open, manager.stats):
        with pytest.raises(ckptz.MissingSnapshotError, match="no snapshot can be restored"):
            use()
    with pytest.raises(ckptz.MissingSnapshotError, match="there are none"):
        manager.restore(1)
    assert manager.verify().ok


# --- Generations and lines -----------------------------------------------------------------------


def test_overwriting_the_newest_step_makes_a_new_generation(tmp_path: Path) -> None:
    manager = saved(tmp_path, 1, 2)
    manager.save(2, small(20), overwrite=True)
    assert manager.all_steps() == [1, 2]
    assert manager.restore()["n"] == 20
    assert manager.restore(2)["n"] == 20
    assert len(stores.snapshot_files(tmp_path)) == 3
    newest = max(stores.snapshot_files(tmp_path), key=lambda p: p.stat().st_mtime_ns)
    newest.write_bytes(b"")
    with pytest.warns(ckptz.CkptzWarning, match="skipped: .* the file is empty"):
        again = CheckpointManager(tmp_path)
    assert again.restore(2)["n"] == 2


@pytest.mark.parametrize("full_every", [0, 1, 50])
def test_overwriting_an_older_step_takes_later_ones_off_the_line(
    tmp_path: Path, full_every: int
) -> None:
    manager = saved(tmp_path, 1, 2, 3, 4, full_every=full_every)
    manager.save(2, small(20), overwrite=True)
    assert manager.all_steps() == [1, 2]
    assert manager.restore()["n"] == 20
    # It does not need what has left the line.
    for step in (3, 4):
        next(tmp_path.glob(f"{step:010d}-*")).unlink()
    for store in (manager, CheckpointManager(tmp_path)):
        store.reload()
        assert_same(store.restore(), small(20))
        assert_same(store.restore(1), small(1))
        assert store.verify().ok


def test_overwriting_below_the_first_step_starts_the_line_anew(tmp_path: Path) -> None:
    manager = saved(tmp_path, 5, 6)
    manager.save(3, small(3), overwrite=True)
    assert manager.all_steps() == [3]
    assert manager.stats(3).kind == "full"
    manager.save(5, small(50))
    assert CheckpointManager(tmp_path).restore(5)["n"] == 50
    assert CheckpointManager(tmp_path).all_steps() == [3, 5]


def test_rewinding(tmp_path: Path) -> None:
    manager = saved(tmp_path, 1, 2, 3, 4)
    assert manager.restore(2, rewind=True)["n"] == 2
    assert manager.all_steps() == [1, 2]
    assert manager.latest_step() == 2
    # Not before the next save.
    assert CheckpointManager(tmp_path).all_steps() == [1, 2, 3, 4]
    manager.save(3, small(30))
    for store in (manager, CheckpointManager(tmp_path)):
        assert store.all_steps() == [1, 2, 3]
        assert store.restore(3)["n"] == 30
        assert store.restore()["n"] == 30
        with pytest.raises(ckptz.MissingSnapshotError):
            store.restore(4)
    assert len(stores.snapshot_files(tmp_path)) == 5
    assert manager.verify().snapshots == 5


def test_rewinding_twice_and_to_the_same_step(tmp_path: Path) -> None:
    manager = saved(tmp_path, *range(6))
    manager.restore(3, rewind=True)
    manager.save(4, small(40))
    manager.restore(2, rewind=True)
    manager.save(3, small(300))
    manager.restore(3, rewind=True)
    manager.save(4, small(400))
    assert [manager.restore(step)["n"] for step in manager] == [0, 1, 2, 300, 400]
    assert CheckpointManager(tmp_path).all_steps() == [0, 1, 2, 3, 4]


def test_rewinding_to_the_newest_loses_nothing(tmp_path: Path) -> None:
    manager = saved(tmp_path, 1, 2)
    manager.restore(rewind=True)
    manager.save(3, small(3))
    assert manager.all_steps() == [1, 2, 3]


def test_a_failed_save_after_a_rewind_leaves_the_rewind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = saved(tmp_path, 1, 2, 3)
    manager.restore(1, rewind=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            manager.save(2, small(20))
    assert manager.all_steps() == [1]
    manager.save(2, small(200))
    assert manager.all_steps() == [1, 2]


def test_a_failed_overwrite_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = saved(tmp_path, 1, 2, 3)
    with pytest.raises(ckptz.UnsupportedTypeError):
        manager.save(1, {"w": object()}, overwrite=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            manager.save(1, small(10), overwrite=True)
    assert manager.all_steps() == [1, 2, 3]
    manager.save(4, small(4))
    assert [manager.restore(step)["n"] for step in manager] == [1, 2, 3, 4]


def fail(*_: object) -> None:
    raise OSError(5, "Input/output error")


# --- Options -------------------------------------------------------------------------------------


def test_options_that_cannot_be(tmp_path: Path) -> None:
    for options in (
        {"exact": "all"},
        {"full_every": -1},
        {"full_every": 1.5},
        {"full_every": True},
        {"threads": 0},
        {"threads": 2000},
        {"threads": 1.0},
    ):
        with pytest.raises(ValueError, match="is not"):
            CheckpointManager(tmp_path, **options)  # type: ignore[arg-type]
    with pytest.raises(ckptz.PolicyError):
        CheckpointManager(tmp_path, "lossless")
    with pytest.raises(FileNotFoundError, match="there is no store to read"):
        CheckpointManager(tmp_path / "none", readonly=True)
    assert list(tmp_path.iterdir()) == []


def test_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from ckptz import codec

    monkeypatch.setenv("CKPTZ_NUM_THREADS", "3")
    assert codec.default_threads() == 3
    assert codec.default_threads(2) == 2
    monkeypatch.setenv("CKPTZ_NUM_THREADS", "many")
    assert codec.default_threads() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("CKPTZ_NUM_THREADS", "0")
    with pytest.raises(ValueError, match="threads=0"):
        codec.default_threads()


@pytest.mark.parametrize(
    ("full_every", "kinds"), [(0, "fddddd"), (1, "ffffff"), (2, "fdfdfd"), (4, "fdddfd")]
)
def test_full_snapshots(tmp_path: Path, full_every: int, kinds: str) -> None:
    with CheckpointManager(tmp_path, full_every=full_every) as manager:
        for step in range(len(kinds)):
            manager.save(step, small(step))
            found = manager.stats(step)
            assert found.kind[0] == kinds[step]
            assert found.restore_files <= (full_every or 99) + 1
            if step == 2:
                # The count goes on where a store is opened again.
                manager.close()
                manager = CheckpointManager(tmp_path, full_every=full_every)
        manager.close()


def test_exactness_of_the_newest(tmp_path: Path) -> None:
    trees = list(stores.training(4))
    latest = CheckpointManager(tmp_path / "latest")
    none = CheckpointManager(tmp_path / "none", exact="none")
    for step, tree in enumerate(trees):
        latest.save(step, tree)
        none.save(step, tree)
        assert_same(latest.restore(), tree)
        assert stores.arrays_of(none.restore()) == stores.base_of(none)
        assert len(list((tmp_path / "latest").glob("*.residual.ckptz"))) == (step > 0)
        assert len(list((tmp_path / "none").glob("*.residual.ckptz"))) == 0
    assert stores.digest(none.restore()) != stores.digest(trees[-1])
    # The history is what it is without residuals.
    for step in range(3):
        assert_same(latest.restore(step), none.restore(step))


def test_without_residuals_the_old_ones_go(tmp_path: Path) -> None:
    trees = list(stores.training(4))
    for step, exact in enumerate(["latest", "latest", "none", "latest"]):
        with CheckpointManager(tmp_path, exact=exact) as manager:  # type: ignore[arg-type]
            manager.save(step, trees[step])
        names = [path.name[:10] for path in tmp_path.glob("*.residual.ckptz")]
        assert names == ([f"{step:010d}"] if step in (1, 3) else [])


def test_a_store_remembers_its_policy(tmp_path: Path) -> None:
    assert CheckpointManager(tmp_path).policy == ckptz.Policy.lossy()
    rules = [ckptz.Rule("w", mode="lossy", levels=5), ckptz.Rule("*", mode="exact")]
    with CheckpointManager(tmp_path, rules) as manager:
        manager.save(0, small())
        manager.save(1, small(1))
    with CheckpointManager(tmp_path) as manager:
        assert manager.policy == ckptz.Policy(rules)
        manager.save(2, small(2))
    with CheckpointManager(tmp_path, "exact") as manager:
        assert manager.policy == ckptz.Policy.exact()
    # Only looking at it changes nothing; a save records it.
    with CheckpointManager(tmp_path) as manager:
        assert manager.policy == ckptz.Policy(rules)
    with CheckpointManager(tmp_path, "exact") as manager:
        manager.save(3, small(3))
    with CheckpointManager(tmp_path) as manager:
        assert manager.policy == ckptz.Policy.exact()
        manager.restore(2, rewind=True)
        manager.save(3, small(33))
        assert manager.policy == ckptz.Policy.exact()
        assert manager.stats(3).tensors["w"].lossy is False


def test_a_rule_that_matches_nothing_warns_once(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, [ckptz.Rule("typo/*"), ckptz.Rule("*")])
    with pytest.warns(ckptz.CkptzWarning, match="rule 'typo/\\*' matches no tensor") as found:
        manager.save(0, small())
    assert len(found) == 1
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manager.save(1, small(1))
        manager.save(2, {"other": np.ones(9)})


def test_warnings_as_errors_break_nothing(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, [ckptz.Rule("typo/*"), ckptz.Rule("*")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ckptz.CkptzWarning):
            manager.save(0, small())
        manager.save(0, small())
    assert_same(manager.restore(), small())


# --- Restoring -----------------------------------------------------------------------------------


def test_keys_give_a_flat_dict(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    tied = np.ones(5)
    manager.save(0, {"model": {"a": tied, "b": [tied, 2], "0": 3, 0: 4}, "x": np.zeros(3)})
    assert_same(
        manager.restore(keys="model/*"),
        {"model/a": tied, "model/b/0": tied, "model/b/1": 2, "model/~20": 3, "model/0": 4},
    )
    found = manager.restore(keys=["x", "*/b/*"])
    assert list(found) == ["model/b/0", "model/b/1", "x"]
    same = manager.restore(keys="model/?*")
    assert same["model/a"] is same["model/b/0"]
    for keys in ("nothing", [], "MODEL/*"):
        with pytest.raises(ckptz.MissingSnapshotError, match="no key path matches"):
            manager.restore(keys=keys)
    assert manager.all_steps() == [0]


def test_restored_arrays_are_fresh_writable_memory(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    for step, tree in enumerate(stores.training(3)):
        manager.save(step, tree)
    first, second = manager.restore(), manager.restore()
    for one, other in zip(
        [first["model"]["weight"], first["optimizer"]["exp_avg"]],
        [second["model"]["weight"], second["optimizer"]["exp_avg"]],
        strict=True,
    ):
        assert one.flags.writeable
        assert one.flags.c_contiguous
        assert not np.shares_memory(one, other)
        one[:] = 0
    assert_same(second, manager.restore())
    manager.save(3, second)
    assert_same(manager.restore(), second)


def test_saving_never_changes_the_caller_s_arrays(tmp_path: Path) -> None:
    tree = {
        "c": stores.weights(0),
        "f": np.asfortranarray(stores.weights(1)),
        "big": stores.weights(2).astype(">f4"),
        "frozen": stores.weights(3),
    }
    tree["frozen"].flags.writeable = False
    before = {name: array.tobytes() for name, array in tree.items()}
    with CheckpointManager(tmp_path) as manager:
        for step in range(4):
            manager.save(step, tree)
            manager.save(step, {name: array + step for name, array in tree.items()}, overwrite=True)
    assert {name: array.tobytes() for name, array in tree.items()} == before
    assert tree["big"].dtype == ">f4"


def test_what_is_not_stored_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    before = stores.files(tmp_path)
    with pytest.raises(ckptz.UnsupportedTypeError, match=r"^a/0: cannot store .* object;"):
        manager.save(1, {"a": [object()]})
    assert stores.files(tmp_path) == before
    manager.save(1, small(1))


def test_progress_counts_bytes(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    wrote: list[int] = []
    tree = {"w": stores.weights(0, (70_000,))}
    manager.save(0, tree, progress=wrote.append)
    assert sum(wrote) == sum(t.bytes - t.header_bytes for t in manager.stats(0).tensors.values())
    read: list[int] = []
    manager.restore(progress=read.append)
    assert sum(read) == sum(wrote)


# --- Threads, reentrance, closing ----------------------------------------------------------------


def test_many_threads_restore_while_one_saves(tmp_path: Path) -> None:
    trees = list(stores.training(25))
    manager = CheckpointManager(tmp_path, full_every=4)
    manager.save(0, trees[0])
    digests = {stores.digest(tree): step for step, tree in enumerate(trees)}
    failures: list[BaseException] = []
    done = threading.Event()

    def reading() -> None:
        try:
            while not done.is_set():
                # What is newest at any time is bit for bit what was saved.
                assert stores.digest(manager.restore()) in digests
                manager.reload()
                step = manager.latest_step()
                assert step is not None
                manager.restore(max(0, step - 1))
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=reading) for _ in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for reader in readers:
            reader.start()
        for step, tree in enumerate(trees[1:], 1):
            manager.save(step, tree)
        done.set()
        for reader in readers:
            reader.join()
    assert failures == []
    assert manager.all_steps() == list(range(25))


def test_many_threads_save_one_at_a_time(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    taken = iter(range(1000))
    lock = threading.Lock()
    failures: list[BaseException] = []

    def saving() -> None:
        try:
            for _ in range(5):
                with lock:
                    step = next(taken)
                    manager.save(step, small(step))
        except BaseException as error:
            failures.append(error)

    savers = [threading.Thread(target=saving) for _ in range(4)]
    for saver in savers:
        saver.start()
    for saver in savers:
        saver.join()
    assert failures == []
    assert [manager.restore(step)["n"] for step in manager] == list(range(20))


def test_a_save_within_a_save_is_refused(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    errors: list[Exception] = []

    def again(_: int) -> None:
        for use in (lambda: manager.save(9, small(9)), lambda: manager.save(1, small(9))):
            with pytest.raises(ckptz.CkptzError, match="still under way") as found:
                use()
            errors.append(found.value)

    manager.save(1, {"w": stores.weights(1), "n": 1}, progress=again)
    assert errors
    assert manager.all_steps() == [0, 1]
    manager.save(2, small(2))


def test_closing_within_a_save_waits_for_it(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    held: list[bool] = []

    def stop(_: int) -> None:
        manager.close()
        with pytest.raises(ckptz.StoreLockedError):
            saved(tmp_path, 5)
        held.append(True)

    manager.save(1, {"w": stores.weights(1), "n": 1}, progress=stop)
    assert held
    with saved(tmp_path, 2) as other:
        assert other.all_steps() == [0, 1, 2]


def test_a_closed_manager(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    manager.close()
    manager.close()
    with pytest.raises(ValueError, match="this manager is closed"):
        manager.save(1, small(1))
    assert_same(manager.restore(), small(0))
    with manager as again:
        assert again is manager


def test_an_interrupt_by_the_progress_callback_loses_nothing(tmp_path: Path) -> None:
    trees = list(stores.training(4))
    manager = CheckpointManager(tmp_path, full_every=2)

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    for step, tree in enumerate(trees):
        with pytest.raises(KeyboardInterrupt):
            manager.save(step, tree, progress=interrupt)
        manager.save(step, tree)
        assert_same(manager.restore(), tree)
        assert not list(tmp_path.glob(".tmp-*"))


def test_nothing_stays_open(tmp_path: Path) -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    saved(tmp_path, 0, 1).close()
    before = descriptors()
    with CheckpointManager(tmp_path) as manager:
        manager.save(2, small(2))
        manager.restore(0)
        with manager.open(1) as snapshot:
            snapshot["w"].numpy()
        manager.open(2)["w"].numpy()
        manager.verify()
        manager.stats(1)
        with pytest.raises(ckptz.StepExistsError):
            manager.save(2, small(2))
    assert descriptors() == before
    forgotten = saved(tmp_path, 3)
    del forgotten
    assert descriptors() == before
    with saved(tmp_path, 4) as manager:
        assert manager.latest_step() == 4
