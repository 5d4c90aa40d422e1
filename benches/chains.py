"""What `full_every` and merging cost and give: bytes kept, and what the worst restore takes.

    python benches/chains.py FOLDER... [--large MILLIONS] [--steps N] [--markdown FILE]

A FOLDER holds consecutive snapshots of one run, or such folders; a run shorter than --steps is
walked up and down. --large: also a made-up state of so many million parameters with AdamW's
moments, in float32 (89 are 1 GiB), of which one chain is saved. Times are CPU times of restoring
the last step of the longest chain, files in the page cache, the best of three, as multiples of what
a full snapshot took in the same run.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
from ckptz.inputs import open_input
from runs import folders

EVERY = (1, 5, 10, 20, 50, 100)
HEAD = ("run", "full_every", "max_files", "bytes a step", "files", "bytes read", "CPU time")

PAGE = """\
# How long chains may be

What `full_every` costs and gives, and what merging (`max_files`) changes, by `benches/chains.py`.
"Bytes a step": all files but the residual, over all steps. Files, bytes and CPU time: of the worst
restore, which is that of the last step before a full snapshot; times as multiples of a full one's.

A full snapshot costs as much as many deltas. The longer the chains, the smaller the store, until
most of it is the deltas, which is so between 20 and 100; the bytes that a restore reads grow the
other way, and its time grows with the layers. At 50, the default, a step takes little more than it
ever could, and the worst restore reads 1.6 to 3.5 times a full snapshot's bytes and takes mostly
ten to fifteen times its CPU time. Merging costs no bytes, and a restore opens few files.

"""

States = Callable[[], Iterator[Any]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--large", type=float, default=0, metavar="MILLIONS")
    parser.add_argument("--steps", type=int, default=101)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    rows: list[tuple[object, ...]] = []
    for name, states, steps in runs(options.folders, options.large, options.steps):
        rows += table_of(name, states, steps)
    text = markdown(rows)
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(PAGE + text + "\n")


def runs(tops: list[Path], large: float, steps: int) -> Iterator[tuple[str, States, int | None]]:
    """Yield the runs with the steps to save of each; None: those of one chain."""
    for one, (folder, files) in ((top, found) for top in tops for found in folders([top])):
        if len(files) > 2:
            name = f"{one.name}/{folder}"
            states = [read(path) for path in files]
            yield name, partial(itertools.cycle, [*states, *states[-2:0:-1]]), steps
    if large:
        yield (
            f"{large:g} M parameters ({12e6 * large / 2**30:.2g} GiB), made up",
            lambda: adam(int(large * 1e6)),
            None,
        )


def read(path: Path) -> dict[str, Any]:
    with open_input(path) as file:
        return {key: np.array(value) for key, value in dict(file.state()).items()}  # type: ignore[call-overload]


def adam(count: int) -> Iterator[dict[str, Any]]:
    """A run of AdamW on noise with heavy tails, ten iterations between two snapshots."""
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 0.02, count).astype("f4")
    first, second = np.zeros_like(weight), np.full_like(weight, 1e-8)
    scale = np.exp(rng.normal(-9, 1, count)).astype("f4")
    for iteration in itertools.count():
        if iteration > 2:  # the first moments are not all zero any more
            yield {"weight": weight, "exp_avg": first, "exp_avg_sq": second}
        gradient = rng.standard_normal(count, "f4") * scale
        first = np.float32(0.35) * first + np.float32(0.65) * gradient
        second = np.float32(0.6) * second + np.float32(0.4) * gradient**2
        weight = weight - np.float32(3e-4) * first / (np.sqrt(second) + np.float32(1e-8))


def table_of(name: str, states: States, steps: int | None) -> Iterator[tuple[object, ...]]:
    whole = 0.0
    for every in EVERY if steps else EVERY[:-1]:
        for most in (None, 8) if every > 8 else (None,):
            with tempfile.TemporaryDirectory() as folder:
                policy: dict[str, Any] = {"full_every": every, "max_files": most, "exact": "none"}
                with ckptz.CheckpointManager(folder, **policy) as manager:
                    last = end_of_chain(every, steps)
                    for step, state in zip(range(last + 1), states(), strict=False):
                        manager.save(step, state)
                    took = restore_time(manager, last)
                    whole = whole or took
                    stats = manager.stats(last)
                    held = sum(path.stat().st_size for path in Path(folder).glob("*.ckptz"))
                    each = held // (last + 1)
                    yield (
                        name,
                        every,
                        most or "-",
                        f"{each:,}",
                        stats.restore_files,
                        f"{stats.restore_bytes:,}",
                        f"{took / whole:.1f}",
                    )


def end_of_chain(every: int, steps: int | None) -> int:
    """Return the last step before a full snapshot, of those to save."""
    if steps is None:
        return max(every, 3) - 1
    return steps - 1 - (steps - 1) % every - 1 if every > 1 else steps - 1


def restore_time(manager: ckptz.CheckpointManager, step: int) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        manager.restore(step)
        times.append(time.process_time() - start)
    return min(times)


def markdown(rows: list[tuple[object, ...]]) -> str:
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


if __name__ == "__main__":
    main()
