"""States that evolve under Hypothesis: tensors that change, come, go and turn into others."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import ckptz
import ml_dtypes
import numpy as np
from ckptz import codec
from ckptz.dtypes import numpy_dtype
from hypothesis import strategies as st
from stores import Array, State

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
    """Whether the core takes float tensors without entries (see test_cases_arrays.py)."""
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

    limits: Any = getattr(ml_dtypes, "finfo")(array.dtype)  # noqa: B009 - it has no types
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
            noise = np.asarray(rng.normal(size=old.shape)) * (0.01 if operation == "train" else 1e5)
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
        max_error=st.sampled_from([None, None, 1e-3]),
        max_rel_error=st.sampled_from([None, None, 0.01]),
    )
    paper = st.builds(
        ckptz.Policy.paper,
        st.integers(1, 4),
        st.sampled_from(["midrange", "mean"]),
        st.sampled_from(["plain", "auto"]),
    )
    named = st.sampled_from(["lossy", "lossy:1", "lossy:7", "exact", "paper", "paper:1"])
    return st.one_of(named, paper, st.lists(rules, min_size=1, max_size=2).map(ckptz.Policy))
