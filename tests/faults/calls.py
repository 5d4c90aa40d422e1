"""Faults of the system, at every call of every operation on a store, in processes of their own.

    python tests/faults/calls.py [--seconds N] [--seed N]

For each operation (save, delete, gc, merge, restore ..) a run that nothing happens to tells which
system calls it makes and how often. Then, in random order until the time is up, one call of one run
is killed, fails with EIO or ENOSPC, or is interrupted (EINTR); or a limit on file sizes makes a
write short. After each run every step that must be there is restored bit for bit by a fresh
process's eyes, and the store is saved into again. It fails if anything is lost or wrong, and if a
fault did not fire. Needs strace, and leave to attach to processes.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "python")]

import ckptz  # noqa: E402
import stores  # noqa: E402
from operations import FAILED, REFUSED  # noqa: E402
from tally import Tally  # noqa: E402
from test_retention_faults import TREES, Case, check_steps  # noqa: E402

FAULTS = ("kill", "EIO", "ENOSPC", "EINTR")
# All that reaches a file system; the plan checks that operations make no other such calls.
CALLS = (
    *("openat", "mkdir", "write", "fsync", "rename", "unlink", "close", "flock", "lseek"),
    *("preadv2", "newfstatat", "getdents64"),
)
# Memory, threads, time and signals; `writev` is how the process tells what it has done.
OTHERS = re.compile(
    r"m(map|unmap|remap|protect|advise)|brk|futex|clone3?|exit(_group)?|get\w+|rt_sig\w+|writev"
    r"|sched_\w+|prlimit64|set_robust_list|rseq|clock_\w+|alarm|sigaltstack|fcntl|ioctl|uname"
)
OPERATIONS = Path(__file__).with_name("operations.py")
GONE: dict[str, set[int]] = {
    "new": set(),
    "save": set(),
    "async": set(),
    "delete": {3},
    "first": {0},
    "newest": {7},
    "gc": {0, 1, 3, 4},
    "merge": set(),
    "pin": set(),
    "restore": set(),
}
SAVES = ("new", "save", "async")
EXACT = {6, 7}


class Fault(NamedTuple):
    """One fault of one run."""

    operation: str
    call: str
    how: str
    number: int
    """Of the call, or the largest file's size."""


class Run(NamedTuple):
    """What became of an operation."""

    status: int
    done: bool
    """Whether it said that it was done."""
    log: str
    """What strace saw."""


class Campaign:
    """A store to copy, and a process that does things to the copies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with stores.clock():
            self.bases = Case("", lambda m: None, set()).prepare(folder / "before")
        reader = ckptz.CheckpointManager(folder / "before", readonly=True)
        expected = {
            step: [stores.digest(reader.restore(step, residual=kind)) for kind in (True, False)]
            for step in reader
        }
        pipe = subprocess.PIPE
        command = [sys.executable, str(OPERATIONS), json.dumps(expected)]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        if self.said() != "ready":
            raise SystemExit("the process that does the work does not start")

    def said(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the process that does the work has died")
        return line.strip()

    def run(self, path: Path, limit: int = -1, strace: tuple[str, ...] = ()) -> Run:
        """Do what the path says to a fresh copy."""
        shutil.rmtree(path, ignore_errors=True)
        if not path.name.startswith("new-"):
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
        done = False
        while not (line := self.said()).startswith("exit"):
            done = done or line == "done"
        if tracer is not None:
            # Not asked to end: strace can miss that, and then waits for ever.
            tracer.kill()
            tracer.communicate()
        return Run(int(line.split()[1]), done, log.read_text() if log.exists() else "")

    def count(self, operation: str) -> Counter[str]:
        """How often an operation makes each call, in the thread that makes it most often."""
        found = self.run(self.folder / f"{operation}-0", strace=("-e", "trace=all"))
        if (found.status, found.done) != (0, True):
            raise SystemExit(f"{operation} fails without a fault: {found.status}")
        calls = Counter(re.findall(r"^(\d+) +(\w+)\(", found.log, re.MULTILINE))
        most: Counter[str] = Counter()
        for (thread, call), times in calls.items():
            if thread != str(self.process.pid):
                most[call] = max(most[call], times)
        unknown = [call for call in most if call not in CALLS and not OTHERS.fullmatch(call)]
        if unknown:
            raise SystemExit(f"{operation} makes calls that no fault is planned for: {unknown}")
        return most

    def inject(self, fault: Fault, tally: Tally) -> None:
        """Run with a fault and check the store."""
        path = self.folder / f"{fault.operation}-{fault.number}"
        if fault.how == "short":
            run = self.run(path, limit=fault.number)
            fired = run.status == FAILED
        else:
            what = "signal=SIGKILL" if fault.how == "kill" else f"error={fault.how}"
            rule = f"inject={fault.call}:{what}:when={fault.number}"
            run = self.run(path, strace=("-e", f"trace={fault.call}", "-e", rule))
            fired = run.status == -9 if fault.how == "kill" else "INJECTED" in run.log
        wrong = self.check(path, fault.operation, run) if fired else ""
        kind = f"{fault.operation} {fault.how}"
        tally.note(kind, " ".join(map(str, fault)), wrong, fired=fired)
        shutil.rmtree(path, ignore_errors=True)

    def check(self, path: Path, operation: str, run: Run) -> str:
        """Return what is wrong with the store after a run, or nothing."""
        if run.status not in (0, FAILED, REFUSED, -9):
            return f"exit status {run.status}"
        try:
            self.check_store(path, operation, run.done or run.status == 0)
        except (AssertionError, OSError, ckptz.CkptzError) as error:
            return f"{type(error).__name__}: {error}"
        leftovers = [p.name for p in path.iterdir() if p.name.startswith(".tmp-")]
        return f"left over: {leftovers}" if leftovers else ""

    def check_store(self, path: Path, operation: str, done: bool) -> None:
        """Check what must be there, and that one can go on. done: the operation said so."""
        gone = GONE[operation]
        bases: dict[int, Any] = {} if operation == "new" else dict(self.bases)
        if path.exists():
            reader = ckptz.CheckpointManager(path, readonly=True)
            if operation in SAVES and 30 in reader.all_steps():
                bases[30] = stores.arrays_of(reader.restore(30, residual=False))
                newest = stores.digest(reader.restore())
                assert newest == stores.digest(TREES[23]), "not what was saved"
            exact = EXACT - gone - ({7} if 30 in bases else set())
            check_steps(path, bases, gone, exact)
            if done:
                assert operation not in SAVES or 30 in bases, "the acknowledged step is lost"
                assert not gone & set(reader.all_steps()), "the deleted step is there"
                assert operation != "pin" or 4 in reader.pinned_steps(), "the pin is lost"
        else:
            assert operation == "new", "the store is lost"
            assert not done, "the acknowledged store is lost"
        with ckptz.CheckpointManager(path, full_every=5) as manager:
            if path.exists():
                manager.gc()
            manager.save(31, TREES[22])
            bases[31] = stores.base_of(manager)
        check_steps(path, bases, gone, {6} & bases.keys())
        newest = stores.digest(stores.fresh(path))
        assert newest == stores.digest(TREES[22]), "not what was saved next"

    def close(self) -> None:
        self.process.communicate("\n", timeout=60)


def plan(campaign: Campaign) -> list[Fault]:
    """Every fault there is."""
    before = {p.name for p in (campaign.folder / "before").iterdir()}
    found = []
    for operation in GONE:
        counts = campaign.count(operation)
        for call in CALLS:
            for number in range(1, counts[call] + 1):
                found += [Fault(operation, call, how, number) for how in FAULTS]
        files = (campaign.folder / f"{operation}-0").iterdir()
        written = [p.stat().st_size for p in files if p.name not in before]
        largest = max(written, default=0)
        found += [
            Fault(operation, "write", "short", size)
            for size in range(0, largest, max(1, largest // 60))
        ]
    return found


def main() -> None:
    tally = Tally("calls", __doc__, 400)
    warnings.simplefilter("ignore", ckptz.CkptzWarning)
    if shutil.which("strace") is None:
        tally.skip("needs strace: apt-get install strace")
    draw = random.Random(tally.seed)
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder))
        faults = plan(campaign)
        while tally.more():
            for fault in draw.sample(faults, len(faults)):
                if not tally.more():
                    break
                campaign.inject(fault, tally)
        campaign.close()
    tally.finish("faults", f"; {len(faults)} different ones")


if __name__ == "__main__":
    main()
