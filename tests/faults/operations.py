"""Forks a process for every store that it is told of, which does what the store's name says.

    python tests/faults/operations.py EXPECTED

Started by `calls.py`, and traced. It makes none of the calls that faults are planned for: each
child counts its calls from one. It reads lines `PATH LIMIT` (the largest file, or -1) and writes
`done` when an operation has said so, and `exit STATUS`. EXPECTED: digests of what each step may
give, in JSON.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - else a child would import it
import json
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "python")]

import ckptz  # noqa: E402
import stores  # noqa: E402

# A process that does not end is killed after so many seconds.
LONGEST = 60
FAILED, REFUSED, WRONG = 10, 11, 12
TREES = list(stores.training(24))
Manager = ckptz.CheckpointManager


def restore(manager: Manager) -> None:
    for step in [None, *manager.all_steps()]:
        found = stores.digest(manager.restore(step))
        # Where the newest cannot be read an older one may take its place, with a warning.
        steps = EXPECTED if step is None else [step]
        assert any(found in EXPECTED[one] for one in steps), "wrong bytes"


OPERATIONS: dict[str, Callable[[Manager], object]] = {
    "new": lambda m: m.save(30, TREES[23]),
    "save": lambda m: m.save(30, TREES[23]),
    "async": lambda m: m.save(30, TREES[23], blocking=False).wait(),
    "delete": lambda m: m.delete(3),
    "first": lambda m: m.delete(0),
    "newest": lambda m: m.delete(7),
    "gc": lambda m: m.gc(),
    "merge": lambda m: m.merge(),
    "pin": lambda m: m.pin(4),
    "restore": restore,
}


def work(path: str, limit: int) -> None:
    if limit >= 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    name = path.rsplit("/", 1)[1].split("-")[0]
    keep = 2 if name == "gc" else None
    manager = Manager(path, full_every=5, threads=1, max_to_keep=keep)
    OPERATIONS[name](manager)
    os.writev(1, [b"done\n"])
    manager.close()


def child(path: str, limit: int) -> int:
    """Do it; return the exit status."""
    signal.alarm(LONGEST)
    try:
        work(path, limit)
    except OSError:
        return FAILED
    except ckptz.CkptzError:
        return REFUSED
    except BaseException as error:
        os.writev(2, [repr(error).encode() + b"\n"])
        return WRONG
    return 0


if __name__ == "__main__":
    EXPECTED = {int(step): found for step, found in json.loads(sys.argv[1]).items()}
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    time.time_ns = stores.Clock()
    os.writev(1, [b"ready\n"])
    while line := os.read(0, 4096).decode().strip():
        path, limit = line.split()
        forked = os.fork()
        if forked == 0:
            os._exit(child(path, int(limit)))
        status = os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])
        os.writev(1, [f"exit {status}\n".encode()])
