"""Real deaths: SIGKILL at every system call, exits at every audit event, a disk that is full."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import ckptz
import pytest
import stores
from faults import Store
from trees import assert_same

# Saves steps 1, 2 .. beside step 0, and tells of each when it is durable.
WRITER = """
import os, sys, time
import ckptz, stores
time.time_ns = stores.Clock()
manager = ckptz.CheckpointManager(sys.argv[1], full_every=3, threads=1)
trees = list(stores.training(5))
for step in range(1, 4):
    manager.save(step, trees[step])
    os.write(1, f"{step}\\n".encode())  # in one piece, whatever stdout is
manager.close()
"""

CALLS = ["openat", "write", "fsync", "rename", "unlink", "close", "flock", "preadv2", "newfstatat"]
EVENTS = ["open", "os.rename", "os.remove", "os.scandir", "fcntl.flock"]

# Forks a process for every store named to it, so that each counts its system calls from one. Itself
# it makes none of those while it is traced. With a number the process exits at that audit event.
ZYGOTE = """
import os, sys
import ckptz, stores

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.scandir", "fcntl.flock"}

def exit_at(number, path):
    def hook(event, arguments):
        nonlocal number
        if event in EVENTS and (path in str(arguments) or event == "fcntl.flock"):
            number -= 1
            if number == 0:
                os.write(1, f"died {event}\\n".encode())
                os._exit(9)
    sys.addaudithook(hook)

os.writev(1, [b"ready\\n"])
while line := os.read(0, 4096).decode().strip():
    path, number = line.split()
    child = os.fork()
    if child == 0:
        exit_at(int(number), path)
        sys.argv[1:] = [path]
        exec(WRITER)
        sys.stdout.flush()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.writev(1, [f"exit {status}\\n".encode()])
"""


@pytest.fixture
def begun(tmp_path: Path) -> Store:
    store = Store(tmp_path / "begun")
    with ckptz.CheckpointManager(store.path, full_every=3) as manager:
        store.save(manager, 0, next(stores.training(1)))
    return store


def check_after_death(path: Path, acknowledged: list[int]) -> None:
    """Check that nothing acknowledged is lost, and what is there is what was saved."""
    trees = list(stores.training(5))
    manager = ckptz.CheckpointManager(path, readonly=True)
    steps = manager.all_steps()
    newest = max([0, *acknowledged])
    assert steps in (list(range(newest + 1)), list(range(newest + 2)))
    assert_same(manager.restore(), trees[steps[-1]])
    assert manager.verify().ok
    with ckptz.CheckpointManager(path) as manager:
        manager.save(4, trees[4])
        assert stores.arrays_of(manager.restore(residual=False)) == stores.base_of(manager)
    assert_same(stores.fresh(path), trees[4])
    assert not list(path.glob(".tmp-*"))


class Zygote:
    """A process ready to run the writer, over and over."""

    def __init__(self) -> None:
        script = f"WRITER = {WRITER!r}\n{ZYGOTE}"
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=pipe, stdout=pipe, env=stores.environment()
        )
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def run(self, path: Path, number: int = 0) -> tuple[int, list[int], str]:
        """Run the writer; return its exit status, the steps that it saved, and what it said."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{path} {number}\n".encode())
        self.process.stdin.flush()
        steps, said = [], ""
        while not (line := self.line()).startswith("exit"):
            assert line, "the process itself died"
            if line.isdecimal():
                steps.append(int(line))
            else:
                said = line
        return int(line.split()[1]), steps, said

    def run_killed(self, path: Path, call: str, number: int) -> tuple[int, list[int]]:
        """Run the writer, killed at the system call with this number."""
        inject = f"inject={call}:signal=SIGKILL:when={number}"
        command = ["strace", "-f", "-o", os.devnull, "-e", f"trace={call}", "-e", inject]
        command += ["-p", str(self.process.pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert tracer.stderr is not None
        if "attached" not in (said := tracer.stderr.readline()):
            pytest.skip(f"strace may not attach here: {said}")
        try:
            return self.run(path)[:2]
        finally:
            # Not asked to end: strace can miss that, and then waits for ever.
            tracer.kill()
            tracer.communicate()

    def close(self) -> None:
        self.process.communicate(b"\n", timeout=60)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")
@pytest.mark.parametrize("call", CALLS)
def test_a_kill_at_every_system_call(
    tmp_path: Path, begun: Store, zygote: Zygote, call: str
) -> None:
    deadline = time.monotonic() + 8 * stores.MORE
    for number in range(1, 1000):
        path = tmp_path / str(number)
        shutil.copytree(begun.path, path)
        status, steps = zygote.run_killed(path, call, number)
        assert status in (0, -9)
        check_after_death(path, steps)
        if status == 0 or time.monotonic() > deadline:
            break
    assert number > (1 if call in ("flock", "unlink") else 3)


def test_an_exit_at_every_audit_event(tmp_path: Path, begun: Store, zygote: Zygote) -> None:
    died = set()
    for number in range(1, 1000):
        path = tmp_path / str(number)
        shutil.copytree(begun.path, path)
        status, steps, said = zygote.run(path, number)
        assert status in (0, 9)
        check_after_death(path, steps)
        if status == 0:
            break
        died.add(said)
    assert died == {f"died {event}" for event in EVENTS}
    assert number > 30


# --- A full disk ----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("may not mount a small disk here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    store = Store(small_disk / "run")
    manager = ckptz.CheckpointManager(store.path, full_every=2)
    trees = list(stores.training(60))
    step = 0
    while step < len(trees):
        try:
            store.save(manager, step, trees[step])
        except OSError as error:
            failed = error
            break
        step += 1
    assert failed.errno == errno.ENOSPC
    assert failed.filename == str(store.path)
    assert step > 3
    for _ in range(3):
        store.check()
        with pytest.raises(OSError, match="No space left"):
            manager.save(step, trees[step])
        assert not list(store.path.glob(".tmp-*"))
    # The space of what failed is given back: a little more of it, and the same manager goes on.
    remount = ["mount", "-o", "remount,size=128k", str(small_disk)]
    subprocess.run(remount, check=True)
    store.save(manager, step, trees[step])
    store.check()
    manager.close()


def test_a_limit_on_file_size(tmp_path: Path) -> None:
    """A true short write, then EFBIG."""
    code = """
import resource, signal, sys
import ckptz, stores
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
trees = list(stores.training(3, size=40_000))
manager = ckptz.CheckpointManager(sys.argv[1])
manager.save(0, trees[0])
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))
try:
    manager.save(1, trees[1])
except OSError as error:
    print(error.errno)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert stores.digest(manager.restore()) == stores.digest(trees[0])
manager.save(1, trees[1])
assert stores.digest(manager.restore()) == stores.digest(trees[1])
assert manager.verify().ok
"""
    assert stores.run_python(code, tmp_path).stdout.split() == ["27"]
