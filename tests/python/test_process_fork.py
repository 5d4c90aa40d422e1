"""Other processes beside a training run: forks, spawns, loaders' workers."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ckptz
import pytest
import stores
from background_tools import LONG, gate
from ckptz import CheckpointManager
from stores import saved, small
from trees import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

TREES = list(stores.training(60))


def in_child(work: Callable[[], object]) -> str:
    """What a forked child says that work does; it is killed if it hangs."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(int(LONG))
        try:
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode() or b"-")
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return said if status == 0 else f"{said} (exit {status})"


def test_an_inherited_manager_is_of_no_use(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    with gate() as held:
        future = manager.save(1, small(1), blocking=False)
        held.reached()
        uses: list[Callable[[], object]] = [
            lambda: manager.save(2, small(2)),
            lambda: manager.save(2, small(2), blocking=False, on_busy="skip"),
            manager.restore,
            lambda: manager.restore(0, rewind=True),
            manager.open,
            manager.stats,
            manager.verify,
            manager.reload,
            manager.wait,
            manager.all_steps,
            manager.latest_step,
            lambda: manager.drain_on(signal.SIGTERM),
            lambda: future.wait(),
        ]
        for use in uses:
            said = in_child(use)
            assert said.startswith("OtherProcessError"), said
            assert f"process {os.getpid()}" in said
        # But letting go of it is allowed, and does nothing to the parent.
        assert in_child(manager.close) == "None"
        assert in_child(lambda: manager.__exit__(None, None, None)) == "None"
        held.open()
        assert future.wait(LONG)
    assert in_child(lambda: future.wait()) == "True"
    with pytest.raises(ckptz.StoreLockedError):
        saved(tmp_path, 2)
    manager.save(2, small(2))
    assert issubclass(ckptz.OtherProcessError, ckptz.CkptzError)


def use_of_its_own(path: Path, own: Path, threads: int) -> str:
    """Restore from a store that is being written, and save and restore in another."""
    reader = CheckpointManager(path, readonly=True, threads=threads)
    found = reader.restore()
    step = found["optimizer"]["step"]
    assert_same(found, TREES[step])
    with CheckpointManager(own, threads=threads) as manager:
        for number in range(3):
            manager.save(number, TREES[step + number], blocking=number == 1)
        manager.wait(LONG)
        assert_same(manager.restore(), TREES[step + 2])
    return "good"


@pytest.mark.parametrize("threads", [1, 2])
def test_forks_while_saves_are_under_way(tmp_path: Path, threads: int) -> None:
    """At whatever moment of a save, the child can work in every way, on threads of its own."""
    manager = CheckpointManager(tmp_path / "run", full_every=5, threads=threads)
    manager.save(0, TREES[0])
    rng = random.Random(threads)
    for step in range(1, 15 * stores.MORE + 1):
        step = min(step, len(TREES) - 3)
        manager.save(step, TREES[step], blocking=False, overwrite=True)
        time.sleep(rng.random() * 0.02)
        own = tmp_path / f"child{rng.random()}"
        assert in_child(lambda: use_of_its_own(tmp_path / "run", own, threads)) == "good"  # noqa: B023
    manager.close()
    assert manager.verify().ok


def test_an_inherited_snapshot_can_be_read(tmp_path: Path) -> None:
    """A data set that lies in a store, in a loader's workers."""
    manager = CheckpointManager(tmp_path, threads=2)
    tree = {"w": stores.weights(0, (300_000, 2)), "n": 1}
    manager.save(0, tree)
    with manager.open() as snapshot:
        for row in range(0, 300_000, 60_000):
            expected = str(tree["w"][row : row + 3].tolist())
            assert in_child(lambda: snapshot["w"][row : row + 3].tolist()) == expected  # noqa: B023


def test_a_manager_cannot_be_sent(tmp_path: Path) -> None:
    with pytest.raises(ckptz.OtherProcessError, match="make one of its own there"):
        pickle.dumps(saved(tmp_path, 0))


def test_children_that_outlive_a_killed_writer_do_not_hold_its_lock(tmp_path: Path) -> None:
    code = """
import os, sys, time, ckptz, stores
manager = ckptz.CheckpointManager(sys.argv[1])
manager.save(0, stores.small(0))
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
os.kill(os.getpid(), 9)
"""
    ran = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=stores.environment(),
    )
    assert ran.stdout is not None
    child = int(ran.stdout.readline())
    ran.wait(LONG)
    try:
        os.kill(child, 0)
        saved(tmp_path, 1).close()
    finally:
        os.kill(child, signal.SIGKILL)
        ran.stdout.close()


def loader_work(path: str) -> int:
    """What a loader's worker does: reads the newest snapshot of a run."""
    return int(CheckpointManager(path, readonly=True, threads=2).restore()["optimizer"]["step"])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_beside_a_training_run(tmp_path: Path, method: str) -> None:
    manager = CheckpointManager(tmp_path, full_every=5, threads=2)
    manager.save(0, TREES[0])
    context: Any = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        for step in range(1, 20):
            manager.save(step, TREES[step], blocking=False)
            found = pool.apply_async(loader_work, (str(tmp_path),)).get(LONG)
            assert step - 1 <= found <= step
    manager.close()
    assert manager.all_steps() == list(range(20))
    assert manager.verify().ok


LOADER = """
import sys, torch, ckptz, stores
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, at):
        return torch.full((3,), float(at))

def main(path, method):
    weight = torch.zeros(200, 3)
    with ckptz.CheckpointManager(path, threads=2) as manager:
        step = 0
        for persistent in (False, True):
            loader = DataLoader(Numbers(), batch_size=5, num_workers=2,
                                persistent_workers=persistent, multiprocessing_context=method)
            for epoch in range(2):
                for batch in loader:
                    weight += batch.mean()
                    manager.save(step, {"weight": weight, "step": step}, blocking=False)
                    step += 1
        manager.wait()
        assert torch.equal(manager.restore()["weight"], weight)
        print(len(manager.all_steps()))

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_torch_data_loader(tmp_path: Path, method: str) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install torch")
    script = tmp_path / "train.py"
    script.write_text(LOADER)
    command = [sys.executable, str(script), str(tmp_path / "run"), method]
    ran = subprocess.run(
        command, capture_output=True, text=True, env=stores.environment(), timeout=120
    )
    assert ran.stdout == "32\n", ran.stderr
