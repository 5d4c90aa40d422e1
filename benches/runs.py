"""Real runs: folders of snapshots, saved into stores and restored."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
from ckptz.inputs import list_inputs, open_input
from ckptz.inputs.listing import SUFFIXES

State = dict[str, Any]


@dataclass
class Run:
    """What saving a run gave."""

    raw: int = 0
    stored: int = 0
    payload: int = 0
    tables: int = 0
    restored: list[State] = field(default_factory=list)
    errors: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    payloads: list[int] = field(default_factory=list)
    stored_each: list[int] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return self.raw / self.stored


def folders(paths: list[Path]) -> Iterator[tuple[str, list[Path]]]:
    """Yield every folder of snapshots, with the snapshots in numeric order."""
    for top in paths:
        inside = sorted({p.parent for suffix in SUFFIXES for p in top.rglob(f"*{suffix}")})
        for folder in inside:
            name = str(folder.relative_to(top)) if folder != top else folder.name
            yield name, list_inputs([folder])


def load(path: Path, weights: bool) -> State:
    """Read a snapshot as a flat dict; with `weights` the float32 weights alone."""
    with open_input(path) as file:
        state = file.state()
    assert isinstance(state, dict)
    if not weights:
        return {key: np.array(value) for key, value in state.items()}
    return {
        key: np.array(value)
        for key, value in state.items()
        if key.startswith("model.") and "running_" not in key and value.dtype == np.float32
    }


def kind_of(key: str) -> str:
    """Name the kind of a tensor for the table of errors."""
    return key.split(".")[1] if key.startswith("opt.") else "weights"


def save_run(files: list[Path], policy: Any, *, weights: bool, exact: str = "none") -> Run:
    """Save a run into a store; restore every step in a manager of its own, without residuals."""
    run = Run()
    with tempfile.TemporaryDirectory() as folder:
        before: State = {}
        with ckptz.CheckpointManager(folder, policy, exact=exact, full_every=0) as manager:  # type: ignore[arg-type]
            for step, path in enumerate(files):
                state = load(path, weights)
                manager.save(step, state)
                stats = manager.stats(step)
                if step == 0:
                    before = state
                    continue
                run.raw += stats.raw_bytes
                run.stored += stats.bytes
                run.stored_each.append(stats.bytes + stats.residual_bytes)
                tensors = stats.tensors.values()
                run.tables += sum(t.table_bytes for t in tensors)
                payload = sum(payload_of(t) for t in tensors)
                run.payload += payload
                run.payloads.append(payload)
                if exact == "latest":
                    check_same(manager.restore(), state)
                restored = lossy_restore(folder, step)
                run.restored.append(restored)
                for kind, error in step_norms(restored, state, before).items():
                    run.errors[kind].append(error)
                before = state
    return run


def payload_of(tensor: ckptz.TensorStats) -> int:
    """Coded bytes of a record, its header left out."""
    return tensor.bytes - tensor.header_bytes


def lossy_restore(folder: str, step: int) -> State:
    """What a process that knows nothing of the writer restores, without the residual."""
    with ckptz.CheckpointManager(folder, readonly=True) as reader:
        restored = reader.restore(step, residual=False)
    assert isinstance(restored, dict)
    return restored


def check_same(restored: Any, state: State) -> None:
    for key, value in state.items():
        assert restored[key].tobytes() == value.tobytes(), key


def step_norms(restored: State, state: State, before: State) -> dict[str, float]:
    """Errors of the float tensors by kind."""
    errors: dict[str, float] = defaultdict(float)
    steps: dict[str, float] = defaultdict(float)
    for key, value in state.items():
        if value.dtype.kind == "f" or value.dtype.name == "bfloat16":
            r, u, b = (np.asarray(x, np.float64) for x in (restored[key], value, before[key]))
            errors[kind_of(key)] += float(((r - u) ** 2).sum())
            steps[kind_of(key)] += float(((u - b) ** 2).sum())
    return {k: math.sqrt(errors[k] / steps[k]) if steps[k] else 0.0 for k in errors}


def geometric_mean(values: list[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def digest(state: State) -> str:
    """First 16 digits of SHA-256 over the tensors in order of their names."""
    found = hashlib.sha256()
    for key in sorted(state):
        found.update(state[key].tobytes())
    return found.hexdigest()[:16]
