"""The arrays that all sides are measured on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from ckptz.inputs import list_inputs, open_input
from numpy.typing import NDArray

Array = NDArray[Any]
State = dict[str, Array]

SUFFIXES = (".safetensors", ".npz", ".pt", ".pth")


@dataclass
class DataSet:
    """Tensors as they are now and as they were: flat arrays of one dtype, in the same order."""

    name: str
    targets: list[Array]
    bases: list[Array]
    deltas: list[Array] = field(default_factory=list)
    """target - base, for those that code an array alone; empty: they code the targets."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.targets)

    @property
    def alone(self) -> list[Array]:
        return self.deltas or self.targets


class Traces:
    """Consecutive snapshots of real runs, in folders below one."""

    def __init__(self, top: Path) -> None:
        files = {path.parent for suffix in SUFFIXES for path in top.rglob(f"*{suffix}")}
        self.folders = sorted(files)
        self.top = top

    def last_two(self, *names: str) -> tuple[str, State, State] | None:
        """Return name, older and newest state of the first folder with one of the names in it."""
        for name in names:
            for folder in self.folders:
                if name in folder.relative_to(self.top).as_posix():
                    older, newer = list_inputs([folder])[-2:]
                    return folder.relative_to(self.top).as_posix(), _load(older), _load(newer)
        return None


def _load(path: Path) -> State:
    with open_input(path) as file:
        state = file.state()
        assert isinstance(state, dict)
        return {key: np.array(value) for key, value in state.items()}


def _factors(nbytes: int, tile: int) -> Array:
    """One factor for each tile: without them coders that look far back would find the last tile.

    From 1 to 2, so that signs, zeros and the shape of the distribution stay as they are.
    """
    rng = np.random.default_rng(5)
    return (1 + rng.random(max(1, nbytes // max(1, tile)))).astype(np.float32)


def _tiled(array: Array, factors: Array) -> Array:
    flat = np.outer(factors, array.reshape(-1).astype(np.float32))
    return np.ascontiguousarray(flat.reshape(-1).astype(array.dtype, copy=False))


def weights(nbytes: int) -> DataSet:
    """Float32 weights, N(0, 0.02), and how they were: a step of heavy tails before."""
    rng = np.random.default_rng(1)
    n = nbytes // 4
    base = np.float32(0.02) * rng.standard_normal(n, dtype=np.float32)
    step = rng.standard_normal(n, dtype=np.float32) / (np.float32(0.15) + rng.random(n, np.float32))
    return DataSet("f32 weights N(0, 0.02)", [base + np.float32(1e-4) * step], [base])


def sparse(dense: DataSet, share: float) -> DataSet:
    """The same weights, of which only a share has changed."""
    target, base = dense.targets[0], dense.bases[0]
    changed = np.random.default_rng(2).random(base.size, np.float32) < share
    return DataSet(f"{100 * (1 - share):g}% zeros", [np.where(changed, target, base)], [base])


def deltas(traces: Traces, nbytes: int) -> DataSet | None:
    """Float32 weights of a real run, one snapshot after another, tiled."""
    found = traces.last_two("gpt_nano/late", "gpt_nano", "")
    if found is None:
        return None
    name, old, new = found
    keys = [key for key in new if key.startswith("model.") and new[key].dtype == np.float32]
    before = np.concatenate([old[key].reshape(-1) for key in keys])
    after = np.concatenate([new[key].reshape(-1) for key in keys])
    factors = _factors(nbytes, after.nbytes)
    target, base = _tiled(after, factors), _tiled(before, factors)
    return DataSet(f"f32 deltas of {name}", [target], [base], [target - base])


def bfloat16(traces: Traces, nbytes: int) -> DataSet | None:
    """Bfloat16 weights, rounded from the float32 ones that an optimizer holds, a step apart."""
    found = traces.last_two("bf16", "gpt_nano/late", "gpt_nano", "")
    if found is None:
        return None
    name, old, new = found
    prefix = "opt.master." if any(key.startswith("opt.master.") for key in new) else "model."
    keys = [key for key in new if key.startswith(prefix)]
    pair = [np.concatenate([s[key].reshape(-1) for key in keys]) for s in (new, old)]
    factors = _factors(nbytes, pair[0].nbytes // 2)
    target, base = (_tiled(a, factors).astype(ml_dtypes.bfloat16) for a in pair)
    return DataSet(f"bf16 weights of {name}", [target], [base])


def adam(traces: Traces, nbytes: int) -> tuple[State, State] | None:
    """Return a whole state with Adam's moments, and the one before it, each tensor made longer."""
    found = traces.last_two("gpt_nano/late", "gpt_nano", "")
    if found is None:
        return None
    _, old, new = found
    factors = _factors(nbytes, sum(array.nbytes for array in new.values()))
    return _longer(new, factors), _longer(old, factors)


def _longer(state: State, factors: Array) -> State:
    longer = {}
    for key, array in state.items():
        scale = factors * factors if "exp_avg_sq" in key else factors
        shape = (-1, *array.shape[1:])
        longer[key] = _tiled(array, scale).reshape(shape) if array.ndim else array
    return longer


def as_set(name: str, states: tuple[State, State]) -> DataSet:
    """A state as a set of arrays, without its plain numbers."""
    new, old = ([a.reshape(-1) for a in state.values() if a.ndim] for state in states)
    return DataSet(name, new, old)
