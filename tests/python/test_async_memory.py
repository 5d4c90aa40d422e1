"""Memory of asynchronous saves: the base, the staged state, one tensor's coded output, 64 MiB."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from peaks import MIB, ROOM, peaks

pytestmark = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="measures with Linux's /proc"
)

SAVES = """
for step in range(5):
    if step:
        nudge(step)
    peak(lambda: (manager.save(step, tree, blocking=False), manager.wait()))
"""


def check(found: list[int], sizes: list[int], nbytes: int, largest: int) -> None:
    """Of a first save, two deltas, another full one, another delta."""
    coded = [min(size, largest) + ROOM for size in sizes]
    allowed = [2 * nbytes + coded[0], *coded[1:]]
    shown = [
        f"{one / MIB:.0f} of {most / MIB:.0f}" for one, most in zip(found, allowed, strict=True)
    ]
    print(shown)
    assert all(one <= most for one, most in zip(found, allowed, strict=True)), shown


def test_one_large_tensor(tmp_path: Path) -> None:
    code = """
tree = {"w": noise(0, 50 << 20)}
def nudge(step):
    tree["w"] += np.float32(0.01) * np.resize(noise(step, 1 << 20), tree["w"].size)
"""
    found, sizes, _ = peaks(tmp_path, code + SAVES)
    check(found, sizes, 200 * MIB, 200 * MIB)


def test_many_tensors_of_all_layouts(tmp_path: Path) -> None:
    code = """
tree = {f"w{n}": noise(n, (256, 1024)) for n in range(128)}
for n in range(0, 128, 3):
    tree[f"w{n}"] = np.asfortranarray(tree[f"w{n}"])
def nudge(step):
    for n in range(128):
        tree[f"w{n}"] += np.float32(0.01) * noise(step * 1000 + n, (256, 1024))
"""
    found, sizes, _ = peaks(tmp_path, code + SAVES)
    check(found, sizes, 128 * MIB, MIB)


def test_a_state_of_other_shapes(tmp_path: Path) -> None:
    """The old buffers and bases go before there are new ones."""
    code = """
tree = {"w": noise(0, 40 << 20)}
manager.save(0, tree, blocking=False).wait()
tree = {"w": noise(0, (40 << 20) - 5)}
peak(lambda: (manager.save(1, tree, blocking=False), manager.wait()))
"""
    found, sizes, _ = peaks(tmp_path, code)
    assert found[0] <= sizes[1] + ROOM, found


def test_two_hundred_saves(tmp_path: Path) -> None:
    """pytorch#170163: what is held is the same after each, within 5%."""
    code = """
tree = {f"w{n}": noise(n, (256, 1024)) for n in range(16)}
held = []
def many():
    for step in range(200):
        tree["w0"] += np.float32(0.01)
        tree[f"w{step % 16}"] *= np.float32(1.01)
        manager.save(step, tree, blocking=False)
        if step % 10 == 9:
            manager.wait()
            held.append(kib("VmRSS:") * 1024)
many()
peaks += held
"""
    found, _, _ = peaks(tmp_path, code)
    later = found[2:]
    print(f"{min(later) / MIB:.1f} .. {max(later) / MIB:.1f} MiB")
    assert len(found) == 20
    assert max(later) <= 1.05 * min(later), later
