"""Helpers for tests of stores: states that evolve, comparisons in every bit, fresh readers."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import mmap
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
from ckptz import codec, state
from hypothesis import HealthCheck, settings

Array = Any  # an array of any dtype
State = dict[str, Any]

# More examples for a campaign: CKPTZ_EXAMPLES=20 has twenty times as many.
MORE = int(os.environ.get("CKPTZ_EXAMPLES", "1"))
SLOW = os.environ.get("CKPTZ_SLOW") == "1"


def examples(count: int) -> settings:
    """Settings of a property test over stores: no deadline, for disks have none."""
    return settings(
        max_examples=count * MORE,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def arrays_of(tree: object) -> list[bytes]:
    """Bytes of a state's tensors, in the order of the schema."""
    return [state.contiguous(array).tobytes() for array in state.flatten(tree).arrays]


def base_of(manager: ckptz.CheckpointManager) -> list[bytes]:
    """Bytes of the writer's base."""
    base = manager._writer._base
    assert base is not None
    return [array.tobytes() for array in base.arrays]


def fresh(path: Path, **options: Any) -> Any:
    """State that a fresh reader of the store restores."""
    threads = options.pop("threads", 1)
    return ckptz.CheckpointManager(path, readonly=True, threads=threads).restore(**options)


def digest(tree: object) -> str:
    """Digest of everything that tensors of a state hold."""
    found = hashlib.sha256()
    for array in state.flatten(tree).arrays:
        found.update(f"{array.dtype} {array.shape}".encode())
        found.update(state.contiguous(array).tobytes())
    return found.hexdigest()


def files(path: Path) -> dict[str, bytes]:
    """Contents of a directory, but for the lock."""
    return {p.name: p.read_bytes() for p in sorted(path.iterdir()) if p.name != "lock"}


def snapshot_files(path: Path) -> list[Path]:
    """Snapshot files of a store, in order of their steps."""
    return sorted(p for p in path.glob("*.ckptz") if not p.name.endswith(".residual.ckptz"))


def header_of(path: Path) -> tuple[int, int]:
    """Revision and features that a file's header tells."""
    data = path.read_bytes()
    return data[10], int.from_bytes(data[12:16], "little")


def strip_features(path: Path) -> None:
    """Have a file's header name no features, checksum and all."""
    data = bytearray(path.read_bytes())
    data[12:16] = bytes(4)
    length = int.from_bytes(data[-16:-12], "little")
    crc = codec.Crc()
    crc.update(bytes(data[:16] + data[-24 - length : -8]))
    data[-8:] = crc.value.to_bytes(8, "little")
    path.write_bytes(data)


def environment() -> dict[str, str]:
    """Environment in which a script finds this package and these helpers."""
    paths = [str(Path(__file__).parent), str(Path(ckptz.__file__).parents[1])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def run_python(code: str, *arguments: object, ok: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120)
    if ok:
        assert done.returncode == 0, done.stderr
    return done


def small(value: float = 0.0) -> State:
    """State of one array and one number, that tell which it is."""
    return {"w": np.full(40, value, "f4"), "n": value}


def saved(path: Path, *steps: int, **options: Any) -> ckptz.CheckpointManager:
    """Manager of a new store with some small steps."""
    manager = ckptz.CheckpointManager(path, **options)
    for step in steps:
        manager.save(step, small(step))
    return manager


def begun(
    path: str | Path, steps: int = 4, first: int = 0, **options: Any
) -> ckptz.CheckpointManager:
    """Manager of a new store with the states number `first` and on of `training(10)`."""
    manager = ckptz.CheckpointManager(path, **options)
    for step, tree in enumerate(itertools.islice(training(10), first, first + steps)):
        manager.save(step, tree)
    return manager


def contents(manager: ckptz.CheckpointManager) -> dict[int, str]:
    """Digest of every step that can be restored."""
    return {step: digest(manager.restore(step)) for step in manager}


class Clock:
    """A clock that ticks once a look, so that files repeat."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000_000

    def __call__(self) -> int:
        self.now += 1_000_000
        return self.now


@contextlib.contextmanager
def clock() -> Iterator[None]:
    """Replace the clock that stamps snapshots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time_ns", Clock())
        yield


def weights(seed: int, shape: tuple[int, ...] = (64, 8), dtype: Any = np.float32) -> Array:
    """Normal numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def training(steps: int, seed: int = 0, size: int = 400) -> Iterator[State]:
    """States of a run that is like training: weights, moments, a counter, a table that stays."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(size // 8, 8)).astype("f4")
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    table = rng.integers(0, 100, size)
    for step in range(steps):
        gradient = rng.normal(size=weight.shape).astype("f4")
        first = np.float32(0.9) * first + np.float32(0.1) * gradient
        second = np.float32(0.95) * second + np.float32(0.05) * gradient**2
        weight = weight - np.float32(0.01) * first
        yield {
            "model": {"weight": weight, "table": table},
            "optimizer": {"exp_avg": first, "exp_avg_sq": second, "step": step},
        }


# --- The float environment ----------------------------------------------------------------------


@contextlib.contextmanager
def flushing() -> Iterator[None]:
    """Have this thread flush subnormals to zero, as `torch.set_flush_denormal(True)` does."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("sets the control register of x86-64")
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("0fae1fc3 0fae17c3".replace(" ", "")))  # stmxcsr, ldmxcsr
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))
    store, load = kind(address), kind(address + 4)
    before = ctypes.c_uint32()
    store(ctypes.byref(before))
    load(ctypes.byref(ctypes.c_uint32(before.value | 0x8040)))
    try:
        yield
    finally:
        load(ctypes.byref(before))


def tiny_survives() -> bool:
    """Whether a subnormal result is kept in this thread."""
    tiny = np.full(64, np.finfo(np.float32).tiny, np.float32)
    return bool((tiny * np.float32(0.5)).any())


def representatives(manager: ckptz.CheckpointManager, step: int) -> dict[str, Any]:
    """What the stored headers of a snapshot say, by key path."""
    from ckptz.layers import shape_of

    store = manager._store
    entry = store.at(step)[0]
    nodes = store.schema(entry).tensors
    described = codec.describe(store.stored(entry).headers, [shape_of(node) for node in nodes])
    return {node.path: record for node, record in zip(nodes, described, strict=True)}
