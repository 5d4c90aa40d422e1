"""A small training run that goes on where it was interrupted: what `chaos.py` has killed.

    python tests/faults/train.py FOLDER

Every step is saved into FOLDER/store, some in the background, older ones are dropped and merged,
and a directory FOLDER/acknowledged/step-N is made when step N is durable. The result is
FOLDER/final.bin.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "python"))

import ckptz
from ckptz.storage import files

STEPS = 12


class _NamedAlike:
    """The module `os` with the same process number and random bytes in every run."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def getpid(self) -> int:
        return 0

    def urandom(self, count: int) -> bytes:
        return next(self._numbers).to_bytes(count, "big")

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def repeat_exactly() -> None:
    """Have names of files be the same in every run: ckpt-chaos looks whether they are."""
    ticks = itertools.count(1_700_000_000_000_000_000, 1_000_000)
    time.time_ns = ticks.__next__
    # There alone: whoever sends signals to this process must not be told another number.
    files.os = _NamedAlike()


def write_through_open() -> None:
    """Have new files go through `open`: these ckpt-chaos can cut short, or undo if not synced."""
    real_open, real_close = os.open, os.close
    opened: dict[int, Any] = {}

    def open_descriptor(path: Any, flags: int, mode: int = 0o777) -> int:
        if not flags & os.O_EXCL:
            return real_open(path, flags, mode)
        file = open(path, "xb", buffering=0)  # noqa: SIM115
        opened[file.fileno()] = file
        return file.fileno()

    def close_descriptor(descriptor: int) -> None:
        file = opened.pop(descriptor, None)
        if file is None:
            real_close(descriptor)
        else:
            file.close()

    os.open, os.close = open_descriptor, close_descriptor


def begun() -> dict[str, Any]:
    weight = np.random.default_rng(7).normal(size=(64, 8)).astype("f4")
    return {"weight": weight, "momentum": np.zeros_like(weight), "step": 0}


def trained(state: dict[str, Any]) -> dict[str, Any]:
    """The state one step later, a function of this one alone."""
    step = state["step"] + 1
    noise = np.random.default_rng(step).normal(size=state["weight"].shape).astype("f4")
    momentum = np.float32(0.9) * state["momentum"] + np.float32(0.1) * (noise + state["weight"])
    weight = state["weight"] - np.float32(0.01) * momentum
    return {"weight": weight, "momentum": momentum, "step": step}


def main(folder: Path) -> None:
    warnings.simplefilter("error", ckptz.CkptzWarning)
    marks = folder / "acknowledged"
    marks.mkdir(parents=True, exist_ok=True)
    manager = ckptz.CheckpointManager(
        folder / "store", full_every=5, max_to_keep=3, max_files=3, threads=1
    )
    manager.drain_on()
    state = begun()
    with contextlib.suppress(ckptz.MissingSnapshotError):
        state = manager.restore()
    print(f"resumed from step {state['step']}", flush=True)
    while state["step"] < STEPS:
        state = trained(state)
        step = state["step"]
        manager.save(step, state, blocking=step % 2 == 0).wait()
        (marks / f"step-{step}").mkdir(exist_ok=True)
    if os.environ.get("CKPT_CHAOS_MODE") == "term":
        time.sleep(1)  # a signal must find it still running, however busy the machine is
    manager.close()
    (folder / "final.bin").write_bytes(state["weight"].tobytes() + state["momentum"].tobytes())


if __name__ == "__main__":
    if "CKPT_CHAOS_WATCH" in os.environ:
        repeat_exactly()
        write_through_open()
    main(Path(sys.argv[1]))
