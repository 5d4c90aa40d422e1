"""Helpers for tests of stores: states that evolve, comparisons in every bit, fresh readers."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import mmap
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ckptz
import numpy as np
import pytest
from ckptz import codec, state
from ckptz.dtypes import numpy_dtype
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Array = np.ndarray[Any, Any]
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


# --- States under Hypothesis ---------------------------------------------------------------------

FLOATS = ["float16", "bfloat16", "float32", "float64"]
OTHERS = [
    "bool",
    "int8",
    "int64",
    "uint16",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "<U3",
    "|S5",
    "<M8[s]",
    "int4",
]
SHAPES = [(), (0,), (1,), (5,), (16,), (17, 3), (2, 3, 4), (0, 5), (300,), (64, 40), (70_001,)]


def empty_floats_work() -> bool:
    """Whether the core takes float tensors without entries (see test_cases_dtypes.py)."""
    try:
        codec.encode(np.empty(0, np.float32), None)
    except ValueError:
        return False
    return True


if not empty_floats_work():
    SHAPES = [shape for shape in SHAPES if 0 not in shape]


def random_bits(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Array of any bits that the dtype can have."""
    kind = numpy_dtype(dtype)
    raw = rng.bytes(math.prod(shape) * kind.itemsize)
    if dtype == "bool":
        raw = bytes(byte & 1 for byte in raw)
    if dtype == "<U3":
        raw = b"".join(bytes([65 + byte % 26, 0, 0, 0]) for byte in raw[::4])
    return np.frombuffer(raw, kind).reshape(shape).copy()


def normal(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Normal numbers, or bits for what has none."""
    if dtype not in FLOATS:
        return random_bits(rng, dtype, shape)
    return np.asarray(rng.normal(size=shape)).astype(numpy_dtype(dtype))


def awkward(rng: np.random.Generator, array: Array) -> Array:
    """Put in numbers that arithmetic treats specially."""
    import ml_dtypes

    limits = ml_dtypes.finfo(array.dtype)
    tiny, most = float(limits.smallest_subnormal), float(limits.max)
    odd = [math.nan, math.inf, -math.inf, -0.0, 0.0, tiny, -tiny, most, -most, 1.0]
    made = array.copy()
    flat = made.reshape(-1)
    for at in rng.integers(0, max(1, flat.size), min(flat.size, 9)):
        flat[at] = np.asarray(odd[rng.integers(len(odd))]).astype(array.dtype)
    if array.dtype == np.float32 and flat.size:
        flat.view(np.uint32)[rng.integers(flat.size)] = 0x7F80_0001  # a NaN with a payload
    return made


OPERATIONS = [
    "train",
    "train",
    "train",
    "large",
    "squares",
    "awkward",
    "bits",
    "sparse",
    "keep",
    "new",
    "drop",
    "resize",
    "retype",
    "tie",
    "untie",
    "equal",
    "rounded",
    "strided",
    "value",
    "nothing",
]


class Change(NamedTuple):
    """One change of a state: what, to which tensor, and a seed for the rest."""

    operation: str
    name: str
    seed: int


def changes() -> st.SearchStrategy[list[Change]]:
    """Draw what happens to a state between two saves."""
    one = st.builds(
        Change, st.sampled_from(OPERATIONS), st.sampled_from("abcd"), st.integers(0, 2**32)
    )
    return st.lists(one, min_size=1, max_size=4)


def beginning(seed: int, shapes: list[tuple[int, ...]] = SHAPES) -> State:
    """State with some of everything."""
    tree: State = {}
    for number, name in enumerate("abcd"):
        tree = apply(tree, Change("new", name, seed + number), shapes)
    return tree


def apply(tree: State, change: Change, shapes: list[tuple[int, ...]] = SHAPES) -> State:
    """State after a change; arrays of the one before are not touched."""
    rng = np.random.default_rng(change.seed)
    made = dict(tree)
    old = made.get(change.name)
    other = made.get("abcd"[int(rng.integers(4))])
    dtype = str(rng.choice(FLOATS if rng.random() < 0.7 else OTHERS))
    shape = shapes[int(rng.integers(len(shapes)))]
    is_float = isinstance(old, np.ndarray) and str(old.dtype) in FLOATS
    operation = change.operation
    if operation == "drop":
        made.pop(change.name, None)
    elif operation == "value":
        made[f"plain {change.name}"] = [int(rng.integers(9)), float(rng.normal()), "text", None]
    elif operation in ("tie", "equal") and other is not None:
        made[change.name] = other if operation == "tie" else other.copy()
    elif operation == "rounded" and isinstance(other, np.ndarray) and str(other.dtype) in FLOATS:
        with np.errstate(all="ignore"):
            made[change.name] = other.astype(numpy_dtype("bfloat16"))
    elif old is None or operation == "new":
        made[change.name] = normal(rng, dtype, shape)
    elif operation == "resize":
        made[change.name] = normal(rng, str(old.dtype) if is_float else "int64", shape)
    elif operation == "retype":
        made[change.name] = normal(rng, dtype, old.shape)
    elif is_float:
        made[change.name] = _changed_float(rng, operation, old)
    elif operation == "bits":
        made[change.name] = random_bits(rng, "int64", old.shape)
    elif operation == "untie":
        made[change.name] = old.copy()
    return made


def _changed_float(rng: np.random.Generator, operation: str, old: Array) -> Array:
    with np.errstate(all="ignore"):
        if operation in ("train", "large"):
            noise = rng.normal(size=old.shape) * (0.01 if operation == "train" else 1e5)
            return np.asarray(old + noise.astype(old.dtype)).astype(old.dtype)
        if operation == "squares":
            return np.asarray(np.abs(old) * old).astype(old.dtype)
        if operation == "sparse":
            made = old.copy()
            flat = made.reshape(-1)
            for at in rng.integers(0, max(1, flat.size), flat.size // 50 + 1)[: flat.size]:
                flat[at] = flat[at] + np.asarray(1e-3).astype(old.dtype)
            return made
    if operation == "awkward":
        return awkward(rng, old)
    if operation == "bits":
        return random_bits(rng, str(old.dtype), old.shape)
    if operation == "strided" and old.ndim > 1:
        return np.asfortranarray(old) if rng.random() < 0.5 else old[::-1]
    return old.copy() if operation == "untie" else old


def policies() -> st.SearchStrategy[Any]:
    """Draw policies: the named ones, and rules with any dials."""
    rules = st.builds(
        ckptz.Rule,
        st.sampled_from(["*", "a", "[ab]"]),
        st.sampled_from(["auto", "lossy"]),
        levels=st.sampled_from([None, 1, 2, 7]),
        domain=st.sampled_from(["auto", "value", "ordered"]),
        representative=st.sampled_from(["mean", "midrange"]),
        refinement=st.sampled_from([0, 1, 5, 23]),
        coding=st.sampled_from(["auto", "plain"]),
    )
    paper = st.builds(
        ckptz.Policy.paper,
        st.integers(1, 4),
        st.sampled_from(["midrange", "mean"]),
        st.sampled_from(["plain", "auto"]),
    )
    named = st.sampled_from(["lossy", "lossy:1", "lossy:7", "exact", "paper", "paper:1"])
    return st.one_of(named, paper, st.lists(rules, min_size=1, max_size=2).map(ckptz.Policy))


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
    described = codec.describe(entry.stored.headers, [shape_of(node) for node in nodes])
    return {node.path: record for node, record in zip(nodes, described, strict=True)}


Hook = Callable[..., Any]
