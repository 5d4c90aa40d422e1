"""What an asynchronous save keeps its caller from doing, beside a copy of the same state.

    python benches/stall.py [--mb 400] [--tensors 50] [--rounds 15] [--threads N]

Each round copies the state with NumPy into memory that lies ready, and saves it asynchronously,
with everything changed since the save before and nothing under way. The figure is the ratio of
the two times: the median over rounds, and that of the shortest times.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import ckptz
import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in {"mb": 400, "tensors": 50, "rounds": 15, "threads": None}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dir", help="where to make the store")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    size = options.mb * 1_000_000 // 4 // options.tensors
    tree = {f"t{n}": rng.standard_normal(size, "f4") for n in range(options.tensors)}
    copies = {name: array.copy() for name, array in tree.items()}
    copied, stalled = [], []
    with (
        tempfile.TemporaryDirectory(dir=options.dir) as folder,
        ckptz.CheckpointManager(folder, threads=options.threads) as manager,
    ):
        for round_ in range(-1, options.rounds):
            for array in tree.values():
                array += np.float32(0.001)
            start = time.perf_counter()
            for name, array in tree.items():
                np.copyto(copies[name], array)
            between = time.perf_counter()
            manager.save(round_ + 1, tree, blocking=False)
            end = time.perf_counter()
            manager.wait()
            # The first finds no memory ready.
            if round_ >= 0:
                copied.append(between - start)
                stalled.append(end - between)
    ratios = [stall / copy for stall, copy in zip(stalled, copied, strict=True)]
    print(
        f"{options.mb} MB in {options.tensors} tensors: a copy takes "
        f"{1000 * statistics.median(copied):.1f} ms, an asynchronous save keeps its caller "
        f"{1000 * statistics.median(stalled):.1f} ms; ratio median {statistics.median(ratios):.2f},"
        f" of the shortest {min(stalled) / min(copied):.2f} ({len(ratios)} rounds)"
    )


if __name__ == "__main__":
    main()
