"""What the tests of the command line share: runs of it, and snapshots to pack."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import ckptz
import numpy as np
from ckptz.cli import main
from ckptz.inputs import open_input
from ckptz.outputs import write_safetensors

State = dict[str, Any]


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


def run(*words: object) -> Ran:
    """Run a command in this process, stdout and stderr no terminals."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return Ran(code, out.getvalue(), err.getvalue())


def fails(code: int, *words: object) -> str:
    """Run a command that fails; return its one line, which is the document's too."""
    ran = run(*words)
    assert ran.code == code, ran
    assert ran.out == ""
    *notes, line = ran.err.splitlines()
    assert line.startswith("ckptz: ")
    assert not notes
    again = run(*words, "--json")
    assert again.code == code
    assert again.err == ""
    document = again.document
    hint = f" ({document['hint']})" if "hint" in document else ""
    assert line == f"ckptz: {document['error']}{hint}"
    assert document["type"]
    return line


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process that finds this very ckptz."""
    place = str(Path(ckptz.__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": place, **more}


def process(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "ckptz", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=120, **options
    )


def walk(steps: int, entries: int = 4000, seed: int = 0) -> list[State]:
    """Return the states of a made-up run: weights that move, a second moment, a step counter."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(0, 0.1, (entries // 40, 40)).astype(np.float32)
    moment = np.square(rng.normal(0, 1e-3, weight.shape)).astype(np.float32)
    states = []
    for step in range(steps):
        weight = weight + rng.standard_cauchy(weight.shape).astype(np.float32) * np.float32(1e-3)
        moment = moment * np.float32(0.99) + np.square(
            rng.normal(0, 1e-3, weight.shape).astype(np.float32)
        )
        states.append({"w": weight, "v": moment, "step": np.array([step], np.int64)})
    return states


def write_run(folder: Path, steps: list[int], **options: Any) -> list[Path]:
    """Write a run as .safetensors files named by step."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for step, state in zip(steps, walk(len(steps), **options), strict=True):
        paths.append(folder / f"{step}.safetensors")
        write_safetensors(paths[-1], state, {})
    return paths


def pack(folder: Path, steps: list[int], *words: object, **options: Any) -> Path:
    """Write a run and pack it; return the store."""
    write_run(folder / "run", steps, **options)
    store = folder / "store"
    ran = run("pack", folder / "run", "-o", store, *words)
    assert ran.code == 0, ran
    return store


def load(path: Path) -> State:
    with open_input(path) as file:
        state = file.state()
    assert isinstance(state, dict)
    return state


def same(left: State, right: State) -> bool:
    """Whether two flat states are the same bit for bit."""
    return left.keys() == right.keys() and all(
        left[key].dtype == right[key].dtype
        and left[key].shape == right[key].shape
        and np.ascontiguousarray(left[key]).tobytes() == np.ascontiguousarray(right[key]).tobytes()
        for key in left
    )


def flip(path: Path, at: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
