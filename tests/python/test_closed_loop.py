"""The closed loop: the writer's base after a save is what a reader restores, bit for bit."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import ckptz
import evolving
import numpy as np
import pytest
import stores
from hypothesis import given, note
from hypothesis import strategies as st
from trees import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:.*matches no tensor:ckptz.CkptzWarning")

# Each entry: changes before a save, whether to reopen, threads of the writer, of the reader.
Saves = list[tuple[list[evolving.Change], bool, int, int]]
SAVES = st.lists(
    st.tuples(evolving.changes(), st.booleans(), st.integers(1, 2), st.integers(1, 2)),
    min_size=1,
    max_size=6,
)


@stores.examples(60)
@given(
    SAVES,
    evolving.policies(),
    st.sampled_from(["latest", "none"]),
    st.integers(0, 4),
    st.booleans(),
)
def test_base_is_what_a_reader_restores(
    saves: Saves, policy: Any, exact: Any, full_every: int, flush: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        check_run(path, saves, policy, exact, full_every, flush)


def check_run(
    path: Path, saves: Saves, policy: Any, exact: Any, full_every: int, flush: bool
) -> None:
    tree = evolving.beginning(len(saves))
    bases: list[list[bytes]] = []
    manager = None
    for step, (changes, reopen, threads, reader_threads) in enumerate(saves):
        for change in changes:
            note(f"{step}: {change}")
            tree = evolving.apply(tree, change)
        if manager is None or reopen:
            if manager is not None:
                manager.close()
            manager = ckptz.CheckpointManager(
                path, policy, exact=exact, full_every=full_every, threads=threads
            )
        save(manager, step, tree, flush)
        bases.append(stores.base_of(manager))
        found = stores.fresh(path, residual=False, threads=reader_threads)
        assert stores.arrays_of(found) == bases[-1]
        if exact == "latest" or policy == "exact":
            assert_same(stores.fresh(path, threads=reader_threads), tree)
    assert manager is not None
    assert manager.verify().ok
    for step, base in enumerate(bases):
        assert stores.arrays_of(manager.restore(step, residual=False)) == base
    manager.close()


def save(manager: ckptz.CheckpointManager, step: int, tree: stores.State, flush: bool) -> None:
    before = stores.arrays_of(tree)
    if flush:
        with stores.flushing():
            manager.save(step, tree)
            assert not stores.tiny_survives()
    else:
        manager.save(step, tree)
    assert stores.arrays_of(tree) == before


def test_a_run_that_is_like_training_restores_in_a_process_of_its_own(tmp_path: Path) -> None:
    code = """
import json, sys, ckptz, stores
manager = ckptz.CheckpointManager(sys.argv[1], readonly=True, threads=2)
print(json.dumps({step: [stores.digest(manager.restore(step, residual=False)),
                         stores.digest(manager.restore(step))] for step in manager}))
"""
    digests = {}
    with ckptz.CheckpointManager(tmp_path, full_every=3, threads=1) as manager:
        for step, tree in enumerate(stores.training(8)):
            manager.save(step, tree)
            base = manager.restore(residual=False)
            assert stores.arrays_of(base) == stores.base_of(manager)
            digests[str(step)] = [stores.digest(base), stores.digest(base)]
    digests["7"][1] = stores.digest(tree)
    found = json.loads(stores.run_python(code, tmp_path).stdout)
    assert found == digests


@stores.examples(15)
@given(SAVES, evolving.policies(), st.integers(0, 3))
def test_files_are_the_same_for_any_number_of_threads(
    saves: Saves, policy: Any, full_every: int
) -> None:
    found = []
    for threads in (1, 2):
        with tempfile.TemporaryDirectory() as folder, stores.clock():
            path = Path(folder)
            tree = evolving.beginning(7)
            with ckptz.CheckpointManager(
                path, policy, full_every=full_every, threads=threads
            ) as manager:
                for step, (changes, *_) in enumerate(saves):
                    for change in changes:
                        tree = evolving.apply(tree, change)
                    manager.save(step, tree)
            found.append(stores.files(path))
    assert found[0] == found[1]


def test_flushing_helper_flushes() -> None:
    assert stores.tiny_survives()
    with stores.flushing():
        assert not stores.tiny_survives()
    assert stores.tiny_survives()


def test_subnormals_are_kept_whatever_the_caller_has_set(tmp_path: Path) -> None:
    tiny = np.finfo(np.float32).smallest_subnormal
    tree = {"w": (np.arange(200, dtype="f4") - 100) * tiny}
    with ckptz.CheckpointManager(tmp_path, "lossy:7") as manager:
        manager.save(0, tree)
        with stores.flushing():
            manager.save(1, {"w": tree["w"] * 3})
            flushed = manager.restore(residual=False)
        assert stores.arrays_of(flushed) == stores.arrays_of(manager.restore(residual=False))
        assert stores.arrays_of(flushed) == stores.base_of(manager)


def test_flush_denormal_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install torch")
    tree = {"w": torch.arange(-100, 100, dtype=torch.float32) * 1e-44}
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush subnormals")
    try:
        with ckptz.CheckpointManager(tmp_path, "lossy:7", threads=2) as manager:
            for step in range(4):
                manager.save(step, {"w": tree["w"] * (step + 1), "b": torch.ones(70_000) * step})
                base = stores.base_of(manager)
    finally:
        torch.set_flush_denormal(False)
    assert stores.arrays_of(stores.fresh(tmp_path, residual=False)) == base
