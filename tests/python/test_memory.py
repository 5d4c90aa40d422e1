"""Peak memory, as promised: the base, one tensor's coded output, and 64 MiB."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from peaks import MIB, ROOM, peaks

pytestmark = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="measures with Linux's /proc"
)

SAVES = """
for step in range(4):
    if step:
        nudge(step)
    peak(lambda: manager.save(step, tree))
peak(lambda: manager.restore(2, residual=False))
peak(lambda: manager.restore())
"""

ONE = """
tree = {"w": noise(0, 75 << 20)}
def nudge(step):
    tree["w"] += np.float32(0.01) * np.resize(noise(step, 1 << 20), tree["w"].size)
"""

MANY = """
tree = {f"w{n}": noise(n, (256, 1024)) for n in range(128)}
def nudge(step):
    for n in range(128):
        tree[f"w{n}"] += np.float32(0.01) * noise(step * 1000 + n, (256, 1024))
"""


def check(found: list[int], sizes: list[int], nbytes: int, largest: int, copy: int = 0) -> None:
    """Of a first save, two deltas, another full one, and two restores."""
    coded = [min(size, largest) for size in sizes]
    allowed = [
        nbytes + coded[0] + copy + ROOM,
        coded[1] + copy + ROOM,
        coded[2] + copy + ROOM,
        coded[3] + copy + ROOM,
        nbytes + ROOM,
        nbytes + ROOM,
    ]
    shown = [
        f"{one / MIB:.0f} of {most / MIB:.0f}" for one, most in zip(found, allowed, strict=True)
    ]
    print(shown)
    assert all(one <= most for one, most in zip(found, allowed, strict=True)), shown


def test_one_large_tensor(tmp_path: Path) -> None:
    nbytes = 300 * MIB
    found, sizes, _ = peaks(tmp_path, ONE + SAVES)
    check(found, sizes, nbytes, nbytes)


def test_many_tensors(tmp_path: Path) -> None:
    found, sizes, _ = peaks(tmp_path, MANY + SAVES)
    check(found, sizes, 128 * MIB, MIB)


def test_one_large_tensor_in_fortran_order(tmp_path: Path) -> None:
    code = """
tree = {"w": np.asfortranarray(noise(0, (10_000, 3_200)))}
def nudge(step):
    tree["w"] += np.float32(0.01) * noise(step, (3_200,))
"""
    nbytes = 128_000_000
    found, sizes, _ = peaks(tmp_path, code + SAVES)
    check(found, sizes, nbytes, nbytes, copy=nbytes)


def test_many_tensors_in_fortran_order(tmp_path: Path) -> None:
    code = MANY.replace("noise(n, (256, 1024))", "np.asfortranarray(noise(n, (256, 1024)))")
    found, sizes, _ = peaks(tmp_path, code + SAVES)
    # Copies are made of a few at a time, not of all.
    check(found, sizes, 128 * MIB, MIB)


def test_all_tensors_renamed(tmp_path: Path) -> None:
    """Nothing has a base: the old one goes before the new one is made."""
    code = """
tree = {f"w{n}": noise(n, (256, 1024)) for n in range(100)}
manager.save(0, tree)
tree = {f"_orig_mod.{name}": np.asfortranarray(array) for name, array in tree.items()}
peak(lambda: manager.save(1, tree))
peak(lambda: manager.save(2, tree))
"""
    found, _, _ = peaks(tmp_path, code)
    assert all(one <= ROOM + 2 * MIB for one in found), found


def test_a_base_that_is_rebuilt(tmp_path: Path) -> None:
    code = (
        MANY
        + """
manager.save(0, tree)
manager.save(1, tree)
manager.close()
manager = ckptz.CheckpointManager(path + "/run", threads=2)
nudge(1)
peak(lambda: manager.save(2, tree))
manager.restore(1, keys="w1", rewind=True)
peak(lambda: manager.save(2, tree))
"""
    )
    found, _, _ = peaks(tmp_path, code)
    assert found[0] <= 128 * MIB + ROOM, found
    assert found[1] <= 128 * MIB + ROOM, found


def test_files_and_views(tmp_path: Path) -> None:
    code = (
        ONE
        + """
file = path + "/one.ckptz"
peak(lambda: ckptz.save_file(tree, file, threads=2))
held = []
peak(lambda: held.append(ckptz.load_file(file, threads=2)))
del held
with ckptz.safe_open(file, threads=2) as snapshot:
    peak(lambda: snapshot["w"][1000:2000])
    peak(lambda: any(snapshot["w"][at].size > 1 for at in range(0, 1 << 20, 1 << 16)))
"""
    )
    found, _, _ = peaks(tmp_path, code)
    assert found[0] <= 300 * MIB + ROOM
    assert found[1] <= 300 * MIB + ROOM
    assert found[2] <= ROOM
    assert found[3] <= ROOM


def test_many_saves_do_not_grow(tmp_path: Path) -> None:
    """pytorch#170163: flat memory."""
    code = """
trees = list(stores.training(60, size=200_000))
for step in range(20):
    manager.save(step, trees[step])
peak(lambda: [manager.save(step, trees[step]) for step in range(20, 60)])
peak(lambda: any(manager.restore() is None for _ in range(20)))
"""
    found, _, _ = peaks(tmp_path, code)
    assert all(one <= 16 * MIB for one in found), found


def test_what_is_kept_of_each_snapshot_is_small(tmp_path: Path) -> None:
    """Its record headers, schema and plain values are not: a long run has many snapshots."""
    code = """
tree = {f"t{n}": np.arange(4) for n in range(3000)}
tree["log"] = ["x" * 50 for _ in range(500)]
manager.save(0, tree)
manager.save(1, tree)
def many():
    for step in range(2, 152):
        for n in range(3000):
            tree[f"t{n}"] = np.arange(4) + 1000 * step + n
        tree["log"][step] = str(step)
        manager.save(step, tree)
peak(many)
"""
    found, sizes, _ = peaks(tmp_path, code)
    assert sum(sizes) > 5 * MIB
    assert found[0] <= 4 * MIB, found
