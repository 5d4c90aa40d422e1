"""How a training process ends: by itself, by signals, by a kill."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import stores
from background_tools import LONG
from ckptz import CheckpointManager
from stores import saved, small
from trees import assert_same

TREES = list(stores.training(60))

# --- Ends of the interpreter ----------------------------------------------------------------------

SLOW = """
import os, signal, sys, threading, time
import ckptz, stores
from ckptz.writer import SnapshotWriter
write = SnapshotWriter.write
manager = ckptz.CheckpointManager(sys.argv[1])
manager.save(0, stores.small(0))
seconds, failure = 0.3, None
def slow(self, *arguments):
    print("begun", flush=True)
    time.sleep(seconds)
    if failure:
        raise failure
    return write(self, *arguments)
SnapshotWriter.write = slow
"""


@contextlib.contextmanager
def running(path: Path, code: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script that saves slowly, until its save is under way."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", SLOW + code, str(path)]
    process = subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, env=stores.environment()
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("end", "status"),
    [("", 0), ("sys.exit(3)", 3), ("1 / 0", 1), ("raise KeyboardInterrupt", -signal.SIGINT)],
)
def test_the_interpreter_s_end_drains(tmp_path: Path, end: str, status: int) -> None:
    ran = stores.run_python(
        SLOW + "manager.save(1, stores.small(1), blocking=False)\n" + end, tmp_path, ok=False
    )
    assert ran.returncode == status
    assert_same(stores.fresh(tmp_path), small(1))
    assert "Exception ignored" not in ran.stderr
    assert bool(ran.stderr) == (status in (1, -signal.SIGINT))


def test_a_failure_at_the_interpreter_s_end_is_told_of(tmp_path: Path) -> None:
    code = "failure = OSError(28, 'full')\nmanager.save(1, stores.small(1), blocking=False)\n"
    ran = stores.run_python(SLOW + code, tmp_path)
    assert "CkptzWarning: the save of step 1 failed: OSError(28, 'full')" in ran.stderr
    assert_same(stores.fresh(tmp_path), small(0))


def test_an_interrupt_at_the_interpreter_s_end_is_told_of(tmp_path: Path) -> None:
    code = """
seconds = 30
manager.save(1, stores.small(1), blocking=False)
timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
timer.daemon = True
timer.start()
"""
    ran = stores.run_python(SLOW + code, tmp_path)
    assert "the save of step 1 was not finished: KeyboardInterrupt()" in ran.stderr
    assert_same(stores.fresh(tmp_path), small(0))


# --- Signals --------------------------------------------------------------------------------------


def terminated(process: subprocess.Popen[str]) -> int:
    """Exit status of a process that is sent SIGTERM.

    Python does not call the handler of a signal that comes just as its main thread goes to sleep:
    then it is sent again.
    """
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(LONG / 4)
    process.send_signal(signal.SIGTERM)
    return process.wait(LONG)


def test_sigterm_drains(tmp_path: Path) -> None:
    code = """
manager.drain_on(signal.SIGTERM, deadline=60)
manager.save(1, stores.small(1), blocking=False)
time.sleep(60)
"""
    with running(tmp_path, code) as process:
        assert terminated(process) == -signal.SIGTERM
    assert_same(stores.fresh(tmp_path), small(1))


def test_sigterm_drains_within_its_deadline(tmp_path: Path) -> None:
    code = """
seconds = 600
manager.drain_on(deadline=0.2)
manager.save(1, stores.small(1), blocking=False)
{}
"""
    for end in ("time.sleep(600)", "manager.close()", "manager.wait()", "sys.exit()"):
        path = tmp_path / end
        with running(path, code.format(end)) as process:
            assert (end, terminated(process)) == (end, -signal.SIGTERM)
        assert_same(stores.fresh(path), small(0))
        saved(path, 1).close()


@pytest.mark.parametrize("wait", ["manager.close()", "manager.wait()", "sys.exit()"])
def test_a_signal_that_does_not_wake_who_waits(tmp_path: Path, wait: str) -> None:
    """It comes just before the main thread waits, or to another thread."""
    code = """
seconds = 600
manager.drain_on(deadline=0.2)
manager.save(1, stores.small(1), blocking=False)
def tell():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(600)
threading.Thread(target=tell, daemon=True).start()
"""
    with running(tmp_path, code + wait) as process:
        assert process.wait(LONG) == -signal.SIGTERM


def test_sigterm_does_afterwards_what_it_did_before(tmp_path: Path) -> None:
    """A training loop's own flag is set once the save is durable."""
    code = """
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(manager.latest_step()))
manager.drain_on()
manager.save(1, stores.small(1), blocking=False)
while not stop:
    time.sleep(0.01)
manager.save(2, stores.small(2), blocking=False)
manager.close()
print(stop, signal.getsignal(signal.SIGTERM).__name__)
"""
    with running(tmp_path, code) as process:
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=LONG) == ("begun\n[1] <lambda>\n", "")
    assert_same(stores.fresh(tmp_path), small(2))


def test_forked_children_do_not_drain(tmp_path: Path) -> None:
    """They are ended by SIGTERM, as loaders' workers are."""
    manager = saved(tmp_path, 0)
    manager.drain_on(signal.SIGTERM)
    ready, tell = os.pipe()
    try:
        child = os.fork()
        if child == 0:
            os.write(tell, b"r")
            time.sleep(LONG)
            os._exit(0)
        # Python forgets signals that come while it forks.
        assert os.read(ready, 1) == b"r"
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    finally:
        manager.close()
        os.close(ready)
        os.close(tell)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_signals_that_cannot_be_handled(tmp_path: Path) -> None:
    manager = saved(tmp_path, 0)
    with pytest.raises(ValueError, match="deadline=-1"):
        manager.drain_on(deadline=-1)
    with pytest.raises((ValueError, OSError)):
        manager.drain_on(signal.SIGKILL)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_ctrl_c_at_random_moments(tmp_path: Path) -> None:
    """Real signals: the loop catches them and goes on, and every save it knows of is there."""
    code = """
import sys, time, ckptz, stores
trees = list(stores.training(40))
manager = ckptz.CheckpointManager(sys.argv[1], full_every=5, threads=2)
print("ready", flush=True)
caught = step = 0
while True:
    try:
        while caught < int(sys.argv[2]):
            step += 1
            manager.save(step, trees[step % 40], blocking=step % 5 == 0)
            if step % 7 == 0:
                manager.wait()
        break
    except KeyboardInterrupt:
        caught += 1
        step += 1
        print(step, flush=True)
manager.close()
future = manager.latest_step()
assert manager.verify().ok
assert stores.digest(manager.restore()) == stores.digest(trees[future % 40])
print("end", flush=True)
"""
    count = 25 * stores.MORE
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env=stores.environment(),
    )
    rng = random.Random(0)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(count):
            time.sleep(0.005 + rng.random() * 0.03)
            process.send_signal(signal.SIGINT)
            # Python drops an interrupt that comes within a finalizer: then, as a user would, again.
            while not select.select([process.stdout], [], [], 20)[0]:
                process.send_signal(signal.SIGINT)
            assert process.stdout.readline().strip().isdecimal()
        assert process.stdout.readline() == "end\n"
        assert process.wait(LONG) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_kill_at_random_moments(tmp_path: Path) -> None:
    """What the loop was told is durable is there, and the newest is as it was saved."""
    code = """
import os, sys, ckptz, stores
trees = list(stores.training(40))
manager = ckptz.CheckpointManager(sys.argv[1], full_every=4, threads=2)
last = None
for step in range((manager.latest_step() or 0) + 1, 10_000):
    future = manager.save(step, trees[step % 40], blocking=False)
    if last is not None and last.durable:
        os.write(1, f"{last.step}\\n".encode())
    last = future
"""
    rng = random.Random(1)
    known = 0
    for _ in range(5 * stores.MORE):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env=stores.environment(),
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rng.random() * 0.2)
        process.kill()
        known = max([known, *map(int, process.communicate()[0].split())])
        manager = CheckpointManager(tmp_path, readonly=True)
        newest = manager.latest_step()
        assert newest is not None
        assert newest >= known
        assert manager.all_steps() == list(range(1, newest + 1))
        assert_same(manager.restore(), TREES[newest % 40])
        assert manager.verify().ok
    assert known > 0
