"""What a restore reads stays within `max_restore_bytes`, whatever is saved, dropped or merged."""

from __future__ import annotations

import itertools
import warnings
import weakref
from pathlib import Path
from typing import Any

import ckptz
import evolving
import fake_objects
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager
from cli_tools import run
from hypothesis import given
from hypothesis import strategies as st
from trees import assert_same

TREES = list(stores.training(24))
URL = "s3://bucket/run"


def full_bytes(path: Path, tree: Any = TREES[0], **options: Any) -> int:
    """Bytes of a full snapshot of a state."""
    with CheckpointManager(path, **options) as manager:
        manager.save(0, tree)
        return manager.stats().restore_bytes


def kinds(manager: CheckpointManager) -> str:
    return "".join(manager.stats(step).kind[0] for step in manager)


def read_at_most(manager: CheckpointManager) -> int:
    return max(manager.stats(step).restore_bytes for step in manager)


def check_held(manager: CheckpointManager, most: int) -> None:
    """No step reads more, or only because a full snapshot alone is more."""
    for step in CheckpointManager(manager.path, readonly=True):
        found = manager.stats(step)
        assert found.restore_bytes <= most or found.kind == "full", step


def given_up(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the size of every delta that is given up."""
    found: list[int] = []
    check = ckptz.reads.Room.check

    def noting(self: Any, size: int, residual: int = 0) -> None:
        try:
            check(self, size, residual)
        except ckptz.reads.TooMuchError:
            found.append(size + residual)
            raise

    monkeypatch.setattr(ckptz.reads.Room, "check", noting)
    return found


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("exact", ["latest", "none"])
def test_the_bound_is_held(tmp_path: Path, exact: Any, blocking: bool) -> None:
    most = int(2.6 * full_bytes(tmp_path / "one"))
    path = tmp_path / "run"
    options: dict[str, Any] = {"exact": exact, "full_every": 0, "max_restore_bytes": most}
    with CheckpointManager(path, **options) as manager:
        for step, tree in enumerate(TREES):
            manager.save(step, tree, blocking=blocking)
            manager.wait()
            check_held(manager, most)
            if exact == "latest":
                assert stores.digest(stores.fresh(path)) == stores.digest(tree)
        assert set(kinds(manager)) == {"f", "d"}
        # It is used, too: only a chain that is almost there ends.
        full = [manager.stats(step).kind == "full" for step in manager]
        ends = [step for step in range(len(TREES) - 1) if full[step + 1]]
        assert max(manager.stats(step).restore_bytes for step in ends) > 0.7 * most
        assert manager.verify().ok


def test_a_bound_that_is_never_reached_changes_nothing(tmp_path: Path) -> None:
    made = []
    for name, most in (("without", None), ("with", 1 << 40)):
        with (
            stores.clock(),
            CheckpointManager(
                tmp_path / name, full_every=9, max_files=5, max_restore_bytes=most
            ) as manager,
        ):
            for step, tree in enumerate(TREES):
                manager.save(step, tree)
        made.append(stores.files(tmp_path / name))
    assert made[0] == made[1]


def test_a_delta_that_turns_out_too_large_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small delta is guessed after small ones; what is written then is new, and exact."""
    found = given_up(monkeypatch)
    states = [{"a": np.arange(8000), "n": n} for n in range(3)]
    states += [{"a": stores.weights(1, (8000,)).view("i4").astype("i8"), "n": n} for n in (3, 4)]
    manager = CheckpointManager(tmp_path, "exact", max_restore_bytes=34_300)
    for step, state in enumerate(states):
        before = set(stores.files(tmp_path))
        manager.save(step, state)
        assert len(set(stores.files(tmp_path)) - before) == 1
        assert_same(stores.fresh(tmp_path), state)
    assert kinds(manager) == "fddfd"
    assert len(found) == 1
    assert stores.base_of(manager) == stores.arrays_of(states[-1])
    assert [p.name for p in tmp_path.iterdir() if not p.name.endswith(".ckptz")] == ["lock"]
    for step, state in enumerate(states):
        assert_same(manager.restore(step), state)
    assert manager.verify().ok


def test_a_full_snapshot_that_fails_after_that_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = stores.begun(tmp_path, 2, max_restore_bytes=1 << 20)
    before = stores.files(tmp_path)
    manager._writer.limit._most = 1 + max(manager.stats(n).restore_bytes for n in (0, 1))
    monkeypatch.setattr(ckptz.reads.ReadLimit, "expects_room", lambda *_: True)
    commit = ckptz.publish.Attempt.commit

    def refuse(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ckptz.publish.Attempt, "commit", refuse)
    with pytest.raises(OSError, match="No space"):
        manager.save(2, TREES[2])
    assert stores.files(tmp_path) == before
    monkeypatch.setattr(ckptz.publish.Attempt, "commit", commit)
    manager._writer.limit._most = 1 << 20
    manager.save(2, TREES[2])
    assert kinds(manager) == "fdd"
    assert stores.digest(stores.fresh(tmp_path)) == stores.digest(TREES[2])


def test_a_full_snapshot_beyond_the_bound_is_saved_with_one_warning(tmp_path: Path) -> None:
    size = full_bytes(tmp_path / "one")
    with CheckpointManager(tmp_path / "run", max_restore_bytes=1000) as manager:
        text = rf"step 0, a full snapshot, reads {size} bytes, more than max_restore_bytes=1000"
        with pytest.warns(ckptz.CkptzWarning, match=text):
            manager.save(0, TREES[0])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for step in range(1, 4):
                manager.save(step, TREES[step])
        assert kinds(manager) == "ffff"
        for step in range(4):
            assert stores.digest(manager.restore(step)) == stores.digest(TREES[step])


@pytest.mark.filterwarnings("error")
def test_another_bound_holds_from_the_next_save_on(tmp_path: Path) -> None:
    stores.begun(tmp_path, 8, full_every=0).close()
    with CheckpointManager(tmp_path, readonly=True) as reader:
        reads = reader.stats(7).restore_bytes
        first = reader.stats(0).restore_bytes
    with CheckpointManager(tmp_path, max_restore_bytes=(first + reads) // 2) as manager:
        for step in range(8, 14):
            manager.save(step, TREES[step])
            assert manager.stats(step).restore_bytes <= (first + reads) // 2
        assert kinds(manager).startswith("fdddddddfd")
    with CheckpointManager(tmp_path) as manager:
        manager.save(14, TREES[14])
        assert manager.stats(14).kind == "delta"


@pytest.mark.filterwarnings("error")
def test_a_manager_that_is_opened_anew_writes_the_same(tmp_path: Path) -> None:
    most = int(2.6 * full_bytes(tmp_path / "one"))
    with stores.clock(), CheckpointManager(tmp_path / "a", max_restore_bytes=most) as manager:
        for step, tree in enumerate(TREES[:12]):
            manager.save(step, tree)
    with stores.clock():
        for step, tree in enumerate(TREES[:12]):
            with CheckpointManager(tmp_path / "b", max_restore_bytes=most) as manager:
                manager.save(step, tree)
    assert stores.files(tmp_path / "a") == stores.files(tmp_path / "b")


@pytest.mark.parametrize("most", [0, -1, 1.5, 1e9, True, "1 GB"])
def test_bounds_that_cannot_be(tmp_path: Path, most: Any) -> None:
    with pytest.raises(ValueError, match=r"max_restore_bytes=.* is not an integer from 1 up"):
        CheckpointManager(tmp_path / "run", max_restore_bytes=most)
    assert list(tmp_path.iterdir()) == []


def test_the_base_is_let_go_of_before_the_full_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no more memory is needed than for any other."""
    manager = stores.begun(tmp_path, 2, max_restore_bytes=1 << 20)
    manager._writer.limit._most = manager.stats(1).restore_bytes
    base = manager._writer._base
    assert base is not None
    known = [weakref.ref(array) for array in base.arrays]
    del base
    alive: list[int] = []
    copied = ckptz.base._copied

    def noting(*arguments: Any) -> Any:
        alive.append(sum(one() is not None for one in known))
        return copied(*arguments)

    monkeypatch.setattr(ckptz.reads.ReadLimit, "expects_room", lambda *_: True)
    monkeypatch.setattr(ckptz.base, "_copied", noting)
    manager.save(2, TREES[2])
    assert manager.stats(2).kind == "full"
    assert alive == [0] * len(known)


@pytest.mark.filterwarnings("error")
def test_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = fake_objects.install(monkeypatch).bucket()
    most = int(2.6 * full_bytes(tmp_path / "one"))
    with CheckpointManager(URL, max_restore_bytes=most) as manager:
        found = given_up(monkeypatch)
        monkeypatch.setattr(ckptz.reads.ReadLimit, "expects_room", lambda *_: True)
        for step, tree in enumerate(TREES):
            manager.save(step, tree)
            check_held(manager, most)
            # A part and a commit for each, and one residual: of what was given up nothing.
            residual = manager.stats().residual_bytes > 0
            assert len([n for n in bucket.names() if n != "lock"]) == 2 * (step + 1) + residual
            assert stores.digest(CheckpointManager(URL).restore()) == stores.digest(tree)
        assert kinds(manager).count("f") > 1 < kinds(manager).count("d")
        assert manager.verify().ok
    assert found


# --- With merging ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("exact", ["latest", "none"])
@pytest.mark.parametrize(("factor", "keep"), [(1.6, None), (2.2, None), (2.6, 3), (3.5, None)])
def test_files_and_bytes_are_held_at_once(
    tmp_path: Path, factor: float, keep: int | None, exact: Any
) -> None:
    most = int(factor * full_bytes(tmp_path / "one"))
    options: dict[str, Any] = {"max_files": 4, "max_to_keep": keep, "exact": exact}
    seen = ""
    with CheckpointManager(tmp_path / "run", max_restore_bytes=most, **options) as manager:
        for step, tree in enumerate(TREES):
            manager.save(step, tree)
            seen += kinds(manager)[-1]
            check_held(manager, most)
            assert max(manager.stats(n).restore_files for n in manager) <= 4
        assert set(seen) == {"f", "d"} or factor < 2
        assert manager.verify().ok


@pytest.mark.filterwarnings("error")
def test_a_pinned_step_reads_its_residual_beside_a_merged_file(tmp_path: Path) -> None:
    """Even where the newest has a small one, or none: here it does not change any more."""
    with CheckpointManager(tmp_path, max_files=3) as manager:
        manager.save(0, TREES[0])
        manager.save(1, TREES[1])
        manager.pin(1)
        most = manager.stats(1).restore_bytes + 2000
    with CheckpointManager(tmp_path, max_files=3, max_restore_bytes=most) as manager:
        for step in range(2, 20):
            manager.save(step, TREES[1])
            check_held(manager, most)
            assert max(manager.stats(n).restore_files for n in manager) <= 3
        assert manager.stats(1).restore_bytes > most - 2000
        assert manager.stats(1).exact
        assert "f" in kinds(manager)[2:]
        assert stores.digest(manager.restore(1)) == stores.digest(TREES[1])


def test_a_merge_that_would_go_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    """Steps of two chains in one file: each would read what is of the other."""
    with CheckpointManager(tmp_path, full_every=6, exact="none") as manager:
        for step in range(12):
            manager.save(step, TREES[step])
        most = read_at_most(manager) + 10
    before = stores.files(tmp_path)
    text = rf"steps 2 to 8 are not merged: .* would read \d+ bytes, and max_restore_bytes={most}"
    with CheckpointManager(tmp_path, max_restore_bytes=most) as manager:
        with pytest.warns(ckptz.CkptzWarning, match=text):
            assert manager.merge([2, 8]) == []
        assert stores.files(tmp_path) == before
        assert [p.name for p in tmp_path.iterdir() if not p.name.endswith(".ckptz")] == ["lock"]
        check_held(manager, most)
        # The next save has nothing to do with that.
        manager.save(12, TREES[12])
    with CheckpointManager(tmp_path) as manager:
        assert len(manager.merge([2, 8])) == 1
        assert read_at_most(manager) > most


def test_what_is_beyond_the_bound_already_may_be_merged(tmp_path: Path) -> None:
    """Layers of dropped steps go: it becomes less."""
    noise = [{"a": stores.weights(seed, (4000,))} for seed in range(6)]
    with CheckpointManager(tmp_path, "exact", full_every=0, exact="none") as manager:
        for step, tree in enumerate(noise):
            manager.save(step, tree)
    with CheckpointManager(tmp_path, max_restore_bytes=20_000, exact="none") as manager:
        for step in range(1, 5):
            manager.delete(step)
        before = read_at_most(manager)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(manager.merge()) == 1
        assert 20_000 < read_at_most(manager) < before
        assert_same(manager.restore(5), noise[5])


def test_after_a_refused_merge_the_next_snapshot_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"max_files": 4, "max_restore_bytes": 1 << 30}
    manager = stores.begun(tmp_path, 3, **options)
    monkeypatch.setattr(ckptz.reads.ReadLimit, "admits", lambda *_: False)
    for step in range(3, 6):
        manager.save(step, TREES[step])
    assert kinds(manager) == "fdddfd"
    assert [manager.stats(step).restore_files for step in manager][-2:] == [1, 3]
    assert stores.digest(stores.fresh(tmp_path)) == stores.digest(TREES[5])


# --- Whatever happens -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
@stores.examples(30)
@given(st.data(), evolving.policies(), st.booleans())
def test_random_states_and_bounds(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, policy: Any, merging: bool
) -> None:
    path = tmp_path_factory.mktemp("store")
    tree = evolving.beginning(data.draw(st.integers(0, 99)))
    size = full_bytes(path / "one", tree, policy=policy, threads=1)
    exact = data.draw(st.sampled_from(["latest", "none"]))
    options: dict[str, Any] = {
        "exact": exact,
        "full_every": data.draw(st.integers(0, 4)),
        "max_files": 3 if merging else None,
        "max_to_keep": data.draw(st.sampled_from([None, 2])),
        "threads": 1,
    }
    bases: dict[int, list[bytes]] = {}
    for step, most in itertools.islice(
        enumerate(_bounds(data, size)), data.draw(st.integers(2, 8))
    ):
        for change in data.draw(evolving.changes()):
            tree = evolving.apply(tree, change)
        with CheckpointManager(path / "run", policy, max_restore_bytes=most, **options) as manager:
            before = {n: manager.stats(n).restore_bytes for n in manager}
            manager.save(step, tree)
            bases[step] = stores.base_of(manager)
            if data.draw(st.integers(0, 3)) == 0:
                manager.pin(step)
            if data.draw(st.integers(0, 3)) == 0:
                manager.merge()
            for n in CheckpointManager(path / "run", readonly=True):
                found = manager.stats(n)
                # What was beyond a lower bound before it was set is no worse now.
                assert found.restore_bytes <= max(most, before.get(n, 0)) or found.kind == "full"
                assert stores.arrays_of(manager.restore(n, residual=False)) == bases[n]
            if exact == "latest":
                assert stores.digest(manager.restore()) == stores.digest(tree)
            assert manager.verify().ok


def _bounds(data: st.DataObject, size: int) -> Any:
    while True:
        yield max(1, int(size * data.draw(st.sampled_from([0.5, 1.0, 1.02, 1.3, 2, 4]))))


def test_pack_holds_a_bound(tmp_path: Path) -> None:
    files = []
    for step in range(6):
        files.append(tmp_path / f"{step}.npz")
        np.savez(files[-1], w=TREES[step]["model"]["weight"], v=TREES[step]["optimizer"]["exp_avg"])
    done = run("pack", *files, "-o", tmp_path / "plain", "--exact", "none")
    assert done.code == 0
    most = run("info", tmp_path / "plain", "--json").document["restore_bytes"] - 1
    words = ["--exact", "none", "--max-restore-bytes", str(most)]
    assert run("pack", *files, "-o", tmp_path / "held", *words).code == 0
    found = run("info", tmp_path / "held", "--json").document
    assert found["restore_bytes"] <= most
    assert found["full_snapshots"] == 2
