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


@dataclass
class Tiles:
    """How to make long arrays of short ones, without what coders that look far back would find.

    Each tile is scaled by a factor of its own, from 1 to 2, and its short runs of entries come in
    an order of their own: the distribution of values and of steps stays as it is, and so does
    what neighbours have to do with each other; the same is done to the array before.
    """

    factors: Array
    run: int = 8

    @classmethod
    def filling(cls, nbytes: int, tile: int) -> Tiles:
        rng = np.random.default_rng(5)
        count = max(1, round(nbytes / tile))
        return cls((1 + rng.random(count)).astype(np.float32))

    def of(self, array: Array, square: bool = False) -> Array:
        """Return the tiles of a flat array one after another. `square`: of second moments."""
        factors = self.factors * self.factors if square else self.factors
        out = np.empty((len(factors), array.size), array.dtype)
        rng = np.random.default_rng(6)
        whole = array.size - array.size % self.run
        runs = array[:whole].reshape(-1, self.run)
        for row, factor in zip(out, factors, strict=True):
            order = rng.permutation(len(runs))
            np.multiply(runs[order], factor, out=row[:whole].reshape(-1, self.run))
            np.multiply(array[whole:], factor, out=row[whole:])
        return out.reshape(-1)


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
    """Float32 weights of a real run, one snapshot after another, each tensor tiled."""
    found = traces.last_two("gpt_nano/late", "gpt_nano", "")
    if found is None:
        return None
    name, old, new = found
    keys = _weights_in(new)
    return _deltas_of(name, [new[key] for key in keys], [old[key] for key in keys], nbytes)


def _weights_in(state: State) -> list[str]:
    return [k for k, a in state.items() if k.startswith("model.") and a.dtype == np.float32]


def _deltas_of(name: str, new: list[Array], old: list[Array], nbytes: int) -> DataSet:
    tiles = Tiles.filling(nbytes, sum(array.nbytes for array in new))
    targets, bases = ([tiles.of(array.reshape(-1)) for array in side] for side in (new, old))
    changes = [target - base for target, base in zip(targets, bases, strict=True)]
    return DataSet(f"f32 deltas of {name}", targets, bases, changes)


def largest_delta(traces: Traces, nbytes: int) -> DataSet | None:
    """The same, of the largest weight alone: one array."""
    found = traces.last_two("gpt_nano/late", "gpt_nano", "")
    if found is None:
        return None
    name, old, new = found
    key = max(_weights_in(new), key=lambda key: new[key].nbytes)
    return _deltas_of(f"{name}, {key}", [new[key]], [old[key]], nbytes)


def bfloat16(traces: Traces, nbytes: int) -> DataSet | None:
    """Bfloat16 weights, rounded from the float32 ones that an optimizer holds, a step apart."""
    found = traces.last_two("bf16", "gpt_nano/late", "gpt_nano", "")
    if found is None:
        return None
    name, old, new = found
    prefix = "opt.master." if any(key.startswith("opt.master.") for key in new) else "model."
    keys = [key for key in new if key.startswith(prefix)]
    tiles = Tiles.filling(2 * nbytes, sum(new[key].nbytes for key in keys))
    tiles.run = 1  # few bits tell few factors apart
    sides = [[tiles.of(side[key].reshape(-1)) for key in keys] for side in (new, old)]
    targets, bases = ([array.astype(ml_dtypes.bfloat16) for array in side] for side in sides)
    return DataSet(f"bf16 weights of {name}", targets, bases)


def adam(traces: Traces, nbytes: int) -> tuple[State, State] | None:
    """Return a whole state with Adam's moments, and the one before it, each tensor made longer."""
    found = traces.last_two("gpt_nano/late", "gpt_nano", "")
    if found is None:
        return None
    _, old, new = found
    tiles = Tiles.filling(nbytes, sum(array.nbytes for array in new.values()))
    return _longer(new, tiles), _longer(old, tiles)


def _longer(state: State, tiles: Tiles) -> State:
    longer = {}
    for key, array in state.items():
        if array.ndim:
            flat = tiles.of(array.reshape(-1), square="exp_avg_sq" in key)
            array = flat.reshape(-1, *array.shape[1:])
        longer[key] = array
    return longer


def as_set(name: str, states: tuple[State, State]) -> DataSet:
    """A state as a set of arrays, without its plain numbers."""
    new, old = ([a.reshape(-1) for a in state.values() if a.ndim] for state in states)
    return DataSet(name, new, old)
