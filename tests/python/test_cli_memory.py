"""Packing holds one state and one file's pages, however many files there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ckptz.outputs import write_safetensors
from cli_tools import environment

FILES = 12
FILE_BYTES = 20 << 20
SLACK = 64 << 20  # design.md, promise 5

SCRIPT = """
import sys
from pathlib import Path
from ckptz.cli import main

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))

before = peak()
assert main(sys.argv[1:]) == 0
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
@pytest.mark.parametrize("policy", ["lossy", "exact"])
def test_memory_of_packing(tmp_path: Path, policy: str) -> None:
    rng = np.random.default_rng(1)
    arrays = {f"layer{i}": rng.normal(0, 1, FILE_BYTES // 16).astype(np.float32) for i in range(4)}
    for step in range(FILES):
        for array in arrays.values():
            array += rng.normal(0, 1e-3, array.size).astype(np.float32)
        write_safetensors(tmp_path / f"{step}.safetensors", arrays, {})
    words = ["pack", str(tmp_path), "-o", str(tmp_path / "store"), "--policy", policy]
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    used = int(ran.stdout.splitlines()[-1])
    print(f"{policy}: {used / 1e6:.0f} MB for {FILES} files of {FILE_BYTES / 1e6:.0f} MB")
    # The base, the pages of the file at hand, and what the encoder works with.
    assert used < 2 * FILE_BYTES + SLACK
    assert used < FILES * FILE_BYTES / 2
