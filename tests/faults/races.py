"""Several processes at one store: writers that want it at once, and readers while steps go.

    python tests/faults/races.py [--seconds N] [--seed N]

Writers open the store, save or are refused, and let go of it; some are killed. What one was told
is saved must be there, bit for bit, and no step twice. Then one process saves, deletes, merges and
collects as fast as it can, and others restore: the newest always, exactly as it was saved and never
older than what was acknowledged before; any other one bit for bit, or not at all once it is gone.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "python")]

import ckptz  # noqa: E402
import stores  # noqa: E402
from tally import Tally  # noqa: E402

TREES = list(stores.training(32))
EXACT = [stores.digest(one) for one in TREES]
# What a writer may be told instead of having saved.
REFUSED = (ckptz.StoreLockedError, ckptz.StepExistsError, ckptz.StepOrderError)
# Seconds of one round.
ROUND = 4.0
LONGEST = 60


class Log:
    """A file to which several processes append lines; each is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(self, **what: Any) -> None:
        os.write(self.descriptor, json.dumps(what).encode() + b"\n")

    def lines(self) -> Iterator[dict[str, Any]]:
        return map(json.loads, self.path.read_text().splitlines())


def fork(work: Callable[[], None], log: Log) -> int:
    """Do work in another process; what goes wrong there is said in the log."""
    child = os.fork()
    if child:
        return child
    try:
        signal.alarm(LONGEST)
        work()
    except BaseException as error:
        log.say(wrong=f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


@contextmanager
def processes(works: list[Callable[[], None]], log: Log) -> Iterator[list[int]]:
    """Run processes beside the body, and wait for them."""
    children = [fork(work, log) for work in works]
    yield children
    for child in children:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status not in (0, -signal.SIGKILL):
            log.say(wrong=f"a process ended with {status}: it hangs, or crashed")


# --- Writers --------------------------------------------------------------------------------------


def write_often(path: Path, log: Log, seed: int, end: float) -> None:
    """Save the step after the last one, again and again, if nobody else does."""
    draw = random.Random(seed)
    while time.monotonic() < end:
        manager = ckptz.CheckpointManager(path, full_every=5, threads=1)
        step = (manager.latest_step() or 0) + 1
        try:
            for one in range(step, step + draw.randrange(1, 4)):
                manager.save(one, TREES[one % len(TREES)], blocking=draw.random() < 0.5).wait()
                log.say(saved=one, base=stores.digest(manager.restore(one, residual=False)))
        except REFUSED as error:
            log.say(refused=type(error).__name__)
        manager.close()
        time.sleep(draw.uniform(0, 0.004))


def race_of_writers(path: Path, log: Log, draw: random.Random, tally: Tally) -> str:
    """Have writers race; return what is wrong."""
    end = time.monotonic() + ROUND
    seeds = [draw.randrange(1 << 30) for _ in range(4)]
    works = [lambda seed=seed: write_often(path, log, seed, end) for seed in seeds]
    with processes(works, log) as children:
        # One is killed, wherever it is, and its lock must be free.
        time.sleep(draw.uniform(0.2, ROUND / 2))
        os.kill(children[0], signal.SIGKILL)
    saved: dict[int, str] = {}
    for line in log.lines():
        if "wrong" in line:
            return str(line["wrong"])
        if "refused" in line:
            tally.note(f"writer: {line['refused']}", "")
            continue
        tally.note("writer: saved", "")
        if line["saved"] in saved:
            return f"step {line['saved']} was saved twice"
        saved[line["saved"]] = line["base"]
    reader = ckptz.CheckpointManager(path, readonly=True, threads=1)
    steps = reader.all_steps()
    if not saved or steps != list(range(1, len(steps) + 1)) or not saved.keys() <= set(steps):
        return f"saved {sorted(saved)}, found {steps}"
    for step, base in saved.items():
        if stores.digest(reader.restore(step, residual=False)) != base:
            return f"step {step} is another one"
    if stores.digest(reader.restore()) != EXACT[steps[-1] % len(TREES)]:
        return "the newest is not what was saved"
    return "; ".join(problem.what for problem in reader.verify().problems)


# --- Readers --------------------------------------------------------------------------------------


def change_often(path: Path, log: Log, seed: int, end: float) -> None:
    """Save, and drop what has been saved."""
    draw = random.Random(seed)
    keep, most = draw.choice([None, 2, 4]), draw.choice([None, 3])
    with ckptz.CheckpointManager(
        path, full_every=draw.choice([3, 6]), threads=1, max_to_keep=keep, max_files=most
    ) as manager:
        for step in range(1, 1 << 30):
            manager.save(step, TREES[step % len(TREES)], blocking=draw.random() < 0.5).wait()
            log.say(saved=step, base=stores.digest(manager.restore(step, residual=False)))
            old = manager.all_steps()[:-1]
            if time.monotonic() > end:
                return
            change = draw.choice(["", "delete", "merge", "gc"])
            if len(old) > 8 or (change == "delete" and old):
                for one in old[:-4] or old[:1]:
                    manager.delete(one)
            elif change:
                manager.merge() if change == "merge" else manager.gc()


def read_often(path: Path, log: Log, own: Log, seed: int, end: float) -> None:
    """Restore, and say what was found."""
    draw = random.Random(seed)
    reader = ckptz.CheckpointManager(path, readonly=True, threads=1)
    warnings.simplefilter("error", ckptz.CkptzWarning)
    while time.monotonic() < end:
        known = 0
        if draw.random() < 0.5:  # else it knows what there was some time ago
            known = max(line["saved"] for line in log.lines() if "saved" in line)
            reader.reload()
        steps = reader.all_steps()
        time.sleep(draw.choice([0, 0, 0.02]))
        found = reader.restore()
        own.say(newest=found["optimizer"]["step"], after=known, digest=stores.digest(found))
        step = draw.choice(steps)
        try:
            if draw.random() < 0.5:
                with reader.open(step, residual=False) as snapshot:
                    time.sleep(draw.choice([0, 0.01]))
                    arrays = [view.numpy() for view in snapshot.values()]
                own.say(opened=step, digest=stores.digest(arrays))
            else:
                own.say(step=step, digest=stores.digest(reader.restore(step, residual=False)))
        except ckptz.MissingSnapshotError:
            own.say(gone=step)


def race_of_readers(path: Path, log: Log, draw: random.Random, tally: Tally) -> str:
    """Have readers race with a writer; return what is wrong."""
    seeds = [draw.randrange(1 << 30) for _ in range(4)]
    with ckptz.CheckpointManager(path, full_every=3, threads=1) as manager:
        manager.save(0, TREES[0])
        log.say(saved=0, base=stores.digest(manager.restore(0, residual=False)))
    own = Log(path.with_name(f"{path.name}.read"))
    end = time.monotonic() + ROUND
    works = [lambda: change_often(path, log, seeds[0], end)]
    works += [lambda seed=seed: read_often(path, log, own, seed, end) for seed in seeds[1:]]
    with processes(works, own):
        pass
    bases = {line["saved"]: line["base"] for line in log.lines()}
    for line in own.lines():
        if "wrong" in line:
            return str(line["wrong"])
        kind = next(iter(line))
        tally.note(f"reader: {kind}", "")
        if kind == "newest":
            # Its counter tells which of the states it is; steps go round.
            if line["digest"] != EXACT[line["newest"]]:
                return f"the newest is not what was saved: {line}"
            late = (line["newest"] - line["after"]) % len(TREES)
            if line["after"] and late > len(TREES) // 2:
                return f"older than what was acknowledged: {line}"
        elif kind != "gone" and line["digest"] != bases[line[kind]]:
            return f"another state: {line}"
    os.close(own.descriptor)
    return ""


def main() -> None:
    tally = Tally("races", __doc__, 60)
    draw = random.Random(tally.seed)
    warnings.simplefilter("ignore", ckptz.CkptzWarning)
    races = [race_of_writers, race_of_readers]
    with tempfile.TemporaryDirectory() as folder:
        number = 0
        while number < len(races) or tally.more():
            race = races[number % len(races)]
            seed = draw.randrange(1 << 40)
            path = Path(folder) / str(number)
            log = Log(path.with_name(f"{number}.log"))
            wrong = race(path, log, random.Random(seed), tally)
            tally.note("rounds", f"{race.__name__} {seed}", wrong)
            os.close(log.descriptor)
            number += 1
    tally.finish("races")


if __name__ == "__main__":
    main()
