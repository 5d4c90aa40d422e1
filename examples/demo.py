"""Packs real snapshots, restores every step, and shows sizes and errors: what `make demo` runs.

    python examples/demo.py [--data FOLDER] [--out FOLDER]

It is an example too: of the manager and of `ckptz.inputs`, which reads the files of
others. FOLDER of data holds a folder of snapshots for each run.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
from ckptz.inputs import list_inputs, open_input, step_of
from ckptz.plots import PlotRow, plot_run

HERE = Path(__file__).parent

State = dict[str, Any]


@dataclass
class Line:
    """One step in the table."""

    run: str
    stats: ckptz.SnapshotStats
    error: float | None
    """In step norms, what the step has once it is history; None for the first."""
    same: bool
    """Whether `restore` gave what was saved, bit for bit."""
    verified: bool


def load(path: Path) -> State:
    """Return a snapshot's tensors, without copying them."""
    with open_input(path) as file:
        state = file.state()
    assert isinstance(state, dict)
    return state


def pack(files: list[Path], store: Path) -> None:
    """Save every snapshot. With a training loop at hand, `save` goes into the loop."""
    with ckptz.CheckpointManager(store, policy="lossy", exact="latest") as manager:
        for path in files:
            step = step_of(path)
            assert step is not None
            manager.save(step, load(path))


def restore(files: list[Path], store: Path, run: str) -> Iterator[Line]:
    """Restore every step in a manager that knows nothing of the writer."""
    with ckptz.CheckpointManager(store, readonly=True) as manager:
        report = manager.verify()
        before: State | None = None
        for step, path in zip(manager.all_steps(), files, strict=True):
            saved, restored = load(path), manager.restore(step)
            history = manager.restore(step, residual=False)
            stats = manager.stats(step)
            same = all(np.array_equal(bits(restored[key]), bits(saved[key])) for key in saved)
            error = None if before is None else step_norms(history, saved, before)
            good = report.ok and step in report.steps and (same or not stats.exact)
            yield Line(run, stats, error, same, good)
            before = saved


def bits(array: Any) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def step_norms(restored: State, saved: State, before: State) -> float:
    """Return |restored - saved| / |saved - saved before| over the model's weights."""
    wrong = moved = 0.0
    for key in saved:
        if key.startswith("model."):
            r, u, b = (state[key].astype(np.float64) for state in (restored, saved, before))
            wrong += float(np.square(r - u).sum())
            moved += float(np.square(u - b).sum())
    return math.sqrt(wrong / moved)


def show(lines: list[Line]) -> None:
    """Print one run's table, and its bytes in all."""
    print(f"\n{lines[0].run}: {lines[0].stats.raw_bytes:,} bytes a snapshot")
    print("    step  kind     bytes  ratio  error  exact  verified")
    for line in lines:
        stats = line.stats
        error = "-" if line.error is None else f"{line.error:.2f}"
        print(
            f"{stats.step:>8}  {stats.kind:<5}  {stats.bytes:>8,}  {stats.ratio:>4.1f}x  "
            f"{error:>5}  {'yes' if line.same else 'no':<5}  {'yes' if line.verified else 'NO'}"
        )
    deltas = [line.stats for line in lines if line.stats.kind == "delta"]
    residual = lines[-1].stats.residual_bytes
    whole = sum(line.stats.bytes for line in lines) + residual
    raw = sum(line.stats.raw_bytes for line in lines)
    of = sum(stats.raw_bytes for stats in deltas)
    stored = sum(stats.bytes for stats in deltas)
    print(f"  whole run: {raw:,} bytes as {whole:,} ({raw / whole:.1f}x), of which the residual")
    print(f"             that makes the newest step exact has {residual:,}")
    print(f"  its deltas: {of:,} bytes as {stored:,} ({of / stored:.1f}x)")


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; 1 if anything was not restored as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--out", type=Path, default=HERE.parent / "demo-out")
    options = parser.parse_args(arguments)
    stores = options.out / "stores"
    shutil.rmtree(stores, ignore_errors=True)
    every: list[Line] = []
    for folder in sorted(path for path in options.data.iterdir() if path.is_dir()):
        files = list_inputs([folder])
        pack(files, stores / folder.name)
        lines = list(restore(files, stores / folder.name, folder.name))
        show(lines)
        every += lines
    print(EXPLAINED)
    picture = options.out / "ratio-and-error.png"
    draw(every, picture)
    print(f"picture: {picture}\nstores:  {stores} (look at one with `ckptz ls` and `ckptz info`)")
    return int(not all(line.verified for line in every))


EXPLAINED = """
error: |restored - saved| / |saved - saved before|, in step norms: 1 would be as far from the
  original as the snapshot before it is. Measured against the original snapshots, over the model's
  weights, without the residual: what the step has once it is history.
exact: whether restoring the step gives what was saved, bit for bit (the newest by its residual).
verified: all checksums are good, and what is stored exactly came back bit for bit.
"""


def draw(lines: list[Line], picture: Path) -> None:
    """Draw ratio and error over the steps of all runs."""
    rows = [
        PlotRow(
            step=line.stats.step,
            ratio=line.stats.ratio,
            error=0.0 if line.stats.kind == "full" else line.error,
            kind=line.stats.kind,
            run=line.run,
        )
        for line in lines
    ]
    label = "error of the weights\n(step norms)"
    plot_run(rows, picture, title="Size and error of every snapshot", error_label=label)


if __name__ == "__main__":
    sys.exit(main())
