"""What predicted bases give: sizes and errors with and without them, on folders of snapshots.

    python benches/predicted.py FOLDER... [--levels 3]

A FOLDER holds consecutive snapshots of one run (`benches/train.py` makes such), or such folders.
For each: the whole state exactly; then lossily the weights alone, and how much larger they are
without at equal error: on the curve that 1 to 7 levels give. Errors are in step norms.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import ckptz
from runs import State, folders, kind_of, load, lossy_restore, step_norms

# Weights are these where there are master copies of them.
WEIGHTS = ("master", "weights")


@dataclass
class Point:
    """What saving a run took; ratios count all bytes after the first snapshot."""

    state: float
    """Ratio of the whole state."""
    weights: float
    """Ratio of the records of the weights."""
    error: float
    """Of the weights, geometric mean over the snapshots; 0 where exact."""
    predicted: int
    """Records in the last snapshot."""


def measure(files: list[Path], rule: ckptz.Rule) -> Point:
    """Save a run and restore every step without residuals."""
    stored = raw = weights = raw_weights = predicted = 0
    errors: list[float] = []
    before: State = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        ckptz.CheckpointManager(folder, rule, exact="none", full_every=0) as manager,
    ):
        for step, path in enumerate(files):
            state = load(path, weights=False)
            manager.save(step, state)
            stats = manager.stats(step)
            if step:
                kind = WEIGHTS[not any(kind_of(key) == "master" for key in state)]
                own = [t for key, t in stats.tensors.items() if kind_of(key) == kind]
                stored, raw = stored + stats.bytes, raw + stats.raw_bytes
                weights += sum(t.bytes for t in own)
                raw_weights += sum(t.raw_bytes for t in own)
                predicted = sum(t.base == "predicted" for t in stats.tensors.values())
                errors.append(step_norms(lossy_restore(folder, step), state, before)[kind])
            before = state
    error = statistics.geometric_mean(errors) if min(errors) > 0 else 0.0
    return Point(raw / stored, raw_weights / weights, error, predicted)


def ratio_at(points: list[Point], error: float) -> float:
    """Ratio of the weights at an error, on the line through the points in logarithms."""
    points = sorted(points, key=lambda point: point.error)
    pairs = list(itertools.pairwise(points))
    low, high = next((p for p in pairs if error <= p[1].error), pairs[-1])
    place = math.log(error / low.error) / math.log(high.error / low.error)
    return math.exp(math.log(low.weights) + place * math.log(high.weights / low.weights))


def compare(name: str, files: list[Path], levels: int) -> None:
    """Print a folder's figures."""
    exact, plain = (
        measure(files, ckptz.Rule(mode="exact", base=b)) for b in ("auto", "unpredicted")
    )
    print(f"{name}: exact, whole state {exact.state:.2f}x, without {plain.state:.2f}x", end="; ")
    print(f"{exact.predicted} records predicted")
    lossy = measure(files, ckptz.Rule(levels=levels))
    curve = [measure(files, ckptz.Rule(levels=k, base="unpredicted")) for k in range(1, 8)]
    same = curve[levels - 1]
    print(f"  lossy, {levels} levels: whole state {lossy.state:.1f}x, without {same.state:.1f}x;")
    print(
        f"  weights {lossy.weights:.1f}x at {lossy.error:.3f}, without {same.weights:.1f}x at ",
        end="",
    )
    print(f"{same.error:.3f}; {lossy.predicted} records predicted")
    if lossy.predicted:
        factor = lossy.weights / ratio_at(curve, lossy.error)
        print(f"  at equal error weights are {factor:.2f} times smaller")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--levels", type=int, default=3)
    args = parser.parse_args()
    for name, files in folders(args.folders):
        compare(name, files, args.levels)


if __name__ == "__main__":
    main()
