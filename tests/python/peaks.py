"""Peak memory of things done in a process of their own, as Linux counts it."""

from __future__ import annotations

import json
from pathlib import Path

import stores

MIB = 1 << 20
ROOM = 64 * MIB

# Prints the peak over what was held before, in bytes, of each thing done; and the files' sizes.
SCRIPT = """
import gc, json, sys
import numpy as np
import ckptz, stores

def kib(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))

def peak(work):
    gc.collect()
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")
    before = kib("VmRSS:")
    work()
    peaks.append((kib("VmHWM:") - before) * 1024)

def noise(seed, shape, dtype="f4"):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(size=shape, dtype="f4").astype(dtype)

peaks = []
path = sys.argv[1]
# What is made once: threads, buffers, the code itself.
for step, tree in enumerate(stores.training(4, size=300_000)):
    with ckptz.CheckpointManager(path + "/warm", threads=2) as manager:
        manager.save(step, tree)
        manager.restore()
del tree
manager = ckptz.CheckpointManager(path + "/run", threads=2, full_every=3)
exec(sys.argv[2])
sizes = [manager.stats(step).bytes for step in manager]
residual = manager.stats().residual_bytes if sizes else 0
print(json.dumps([peaks, sizes, residual]))
"""


def peaks(path: Path, code: str) -> tuple[list[int], list[int], int]:
    found = json.loads(stores.run_python(SCRIPT, path, code).stdout.splitlines()[-1])
    return found[0], found[1], found[2]
