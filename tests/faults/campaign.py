"""Faults of the system, at every call of every operation on a store, in processes of their own.

    python tests/faults/campaign.py [--seconds N] [--seed N]

For each operation (save, delete, gc, merge, restore) and system call a run that nothing happens to
tells how often it is called. Then, in random order until the time is up, one call of one run is
killed, fails with EIO or ENOSPC, or is interrupted (EINTR); or a limit on file sizes makes a write
short. After each run every step that must be there is restored bit for bit by a fresh process's
eyes, and the operation is done again. It fails if anything is lost or wrong, and if a fault did not
fire. Needs strace, and leave to attach to processes.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "python")]

import ckptz  # noqa: E402
import stores  # noqa: E402
from test_retention_faults import CASES, TREES, Case, check_steps  # noqa: E402

CALLS = {
    "openat": ("EIO", "ENOSPC"),
    "write": ("EIO", "ENOSPC", "EINTR"),
    "fsync": ("EIO", "ENOSPC"),
    "rename": ("EIO", "ENOSPC"),
    "unlink": ("EIO",),
    "preadv2": ("EIO", "EINTR"),
    "flock": ("EINTR",),
    "newfstatat": ("EIO",),
    "getdents64": ("EIO",),
    "close": ("EIO",),
}

# Forks a process for every store named to it, which does what the store's name says.
ZYGOTE = """
import concurrent.futures.thread, os, resource, signal, sys, time, warnings
import ckptz, stores
warnings.simplefilter("ignore")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
time.time_ns = stores.Clock()
trees = list(stores.training(24))
os.writev(1, [b"ready\\n"])

def work(path, limit):
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    name = os.path.basename(path).split("-")[0]
    manager = ckptz.CheckpointManager(path, full_every=5, threads=1, max_to_keep=KEEP.get(name))
    OPERATIONS[name](manager)
    manager.close()

KEEP = {"rules": 2}
OPERATIONS = {
    "save": lambda m: m.save(30, trees[23]),
    "delete": lambda m: m.delete(3),
    "rules": lambda m: m.gc(),
    "merge": lambda m: m.merge(),
    "restore": lambda m: [m.restore(step) for step in m.all_steps()],
}
while line := os.read(0, 4096).decode().strip():
    path, limit = line.split()
    child = os.fork()
    if child == 0:
        try:
            work(path, int(limit))
        except OSError as error:
            os._exit(10)
        except ckptz.CkptzError as error:
            os._exit(11)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(12)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.writev(1, [f"exit {status}\\n".encode()])
"""
GONE = {"save": set(), "delete": {3}, "rules": {0, 1, 3, 4}, "merge": set(), "restore": set()}
EXACT = {6, 7}


class Fault(NamedTuple):
    """One fault of one run."""

    operation: str
    call: str
    how: str
    number: int


class Campaign:
    """A store to copy, and a process that does things to the copies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with stores.clock():
            self.bases = Case("", lambda m: None, set()).prepare(folder / "before")
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", ZYGOTE]
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=stores.environment()
        )
        self.said("ready")

    def said(self, word: str) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith(word):
            raise SystemExit(f"the process that does the work said {line!r}")
        return line

    def run(self, path: Path, limit: int = 0, strace: tuple[str, ...] = ()) -> tuple[int, str]:
        """Do what the path says to a fresh copy; return the exit status and strace's log."""
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.folder / "before", path)
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        command = ["strace", "-f", "-o", str(log), *strace, "-p", str(self.process.pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True) if strace else None
        if tracer is not None:
            assert tracer.stderr is not None
            if "attached" not in (said := tracer.stderr.readline()):
                raise SystemExit(f"strace may not attach here: {said}")
        assert self.process.stdin is not None
        self.process.stdin.write(f"{path} {limit}\n")
        self.process.stdin.flush()
        status = int(self.said("exit").split()[1])
        if tracer is None:
            return status, ""
        tracer.kill()
        tracer.communicate()
        return status, log.read_text() if log.exists() else ""

    def count(self, operation: str, call: str) -> int:
        """How often an operation makes a call, in its main thread."""
        status, log = self.run(self.folder / f"{operation}-0", strace=("-e", f"trace={call}"))
        if status != 0:
            raise SystemExit(f"{operation} fails without a fault: {status}")
        threads = Counter(re.findall(rf"^(\d+) +{call}\(", log, re.MULTILINE))
        threads.pop(str(self.process.pid), None)
        return max(threads.values(), default=0)

    def inject(self, fault: Fault) -> str:
        """Run with a fault and check the store; return what went wrong, or nothing."""
        path = self.folder / f"{fault.operation}-{fault.number}"
        if fault.how == "short":
            status, _ = self.run(path, limit=fault.number)
            fired = status == 10
        else:
            what = "signal=SIGKILL" if fault.how == "kill" else f"error={fault.how}"
            rule = f"inject={fault.call}:{what}:when={fault.number}"
            status, log = self.run(path, strace=("-e", f"trace={fault.call}", "-e", rule))
            fired = "INJECTED" in log or status == -9
        if not fired:
            return "the fault did not fire"
        if status not in (0, 10, 11, -9):
            return f"exit status {status}"
        return self.check(path, fault.operation)

    def check(self, path: Path, operation: str) -> str:
        gone = GONE[operation]
        bases: dict[int, Any] = dict(self.bases)
        try:
            reader = ckptz.CheckpointManager(path, readonly=True)
            if operation == "save" and 30 in reader.all_steps():
                bases[30] = stores.arrays_of(reader.restore(30, residual=False))
                if stores.digest(reader.restore()) != stores.digest(TREES[23]):
                    return "the new step is not what was saved"
            check_steps(path, bases, gone, EXACT - gone - ({7} if 30 in bases else set()))
            with ckptz.CheckpointManager(path, full_every=5) as manager:
                manager.gc()
                manager.save(31, TREES[22])
                bases[31] = stores.base_of(manager)
            check_steps(path, bases, gone, {6} - gone)
        except (AssertionError, OSError, ckptz.CkptzError) as error:
            return f"{type(error).__name__}: {error}"
        leftovers = [p.name for p in path.iterdir() if p.name.startswith(".tmp-")]
        return f"left over: {leftovers}" if leftovers else ""

    def close(self) -> None:
        self.process.communicate("\n", timeout=60)


def plan(campaign: Campaign) -> list[Fault]:
    """Every fault there is."""
    found = []
    for operation in GONE:
        for call, errors in CALLS.items():
            for number in range(1, campaign.count(operation, call) + 1):
                found += [Fault(operation, call, how, number) for how in ("kill", *errors)]
        if operation in ("save", "merge"):
            sizes = [p.stat().st_size for p in (campaign.folder / f"{operation}-0").glob("*.ckptz")]
            found += [
                Fault(operation, "write", "short", size) for size in range(17, min(sizes), 211)
            ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    warnings.simplefilter("ignore", ckptz.CkptzWarning)
    assert CASES
    if shutil.which("strace") is None:
        raise SystemExit("needs strace: apt-get install strace")
    end = time.monotonic() + options.seconds
    done: Counter[tuple[str, str]] = Counter()
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder))
        faults = plan(campaign)
        random.Random(options.seed).shuffle(faults)
        for fault in faults:
            if time.monotonic() > end:
                break
            wrong = campaign.inject(fault)
            done[fault.operation, fault.how] += 1
            if wrong:
                failures.append(f"{' '.join(map(str, fault))}: {wrong}")
                print(failures[-1], flush=True)
        campaign.close()
    for key, times in sorted(done.items()):
        print(f"{' '.join(key):<20} {times:>6}")
    print(
        f"{sum(done.values())} of {len(faults)} faults, seed {options.seed}: {len(failures)} wrong"
    )
    os._exit(bool(failures) or not done)


if __name__ == "__main__":
    main()
