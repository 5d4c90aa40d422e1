from __future__ import annotations

import gc
import pathlib
import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ckptz.dtypes import numpy_dtype
from ckptz.state import contiguous, flatten
from hypothesis import given, settings
from hypothesis import strategies as st
from trees import DTYPES, Point, arrays, assert_same, round_trip, trees, values

BITS = np.array([0x7F800001, 0xFFC12345, 0x80000000, 1, 0x7F800000, 0xFF800000], "u4")


@given(trees())
@settings(max_examples=400, deadline=None)
def test_any_state_comes_back(tree: Any) -> None:
    assert_same(round_trip(tree, types=[Point]), tree)


@given(st.lists(arrays(), min_size=1, max_size=3), st.data())
@settings(deadline=None)
def test_shared_leaves_come_back_shared(pool: list[Any], data: st.DataObject) -> None:
    picked = st.sampled_from(range(len(pool))).map(lambda i: pool[i])
    tree = data.draw(trees(picked))
    back = round_trip(tree, types=[Point])
    assert_same(back, tree)
    pairs = list(zip(array_leaves(tree), array_leaves(back), strict=True))
    for one, other in pairs:
        for two, another in pairs:
            assert (one is two) == (other is another)


def array_leaves(tree: Any) -> list[Any]:
    if isinstance(tree, np.ndarray):
        return [tree]
    if isinstance(tree, dict):
        inner = [*tree.values(), *([vars(tree)["_metadata"]] if hasattr(tree, "_metadata") else [])]
    else:
        inner = list(tree) if isinstance(tree, list | tuple) else []
    return [leaf for child in inner for leaf in array_leaves(child)]


# Arrays


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (0, 5), (3,), (2, 3)])
def test_every_dtype_and_shape(name: str, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, numpy_dtype(name))
    assert_same(round_trip({"a": array}), {"a": array})


def test_bits_are_kept() -> None:
    for dtype in ("f4", "u4", "i4", ml_dtypes.bfloat16, "f2", ml_dtypes.float8_e4m3fn):
        array = BITS.view(dtype)
        assert_same(round_trip(array), array)
    large = np.array([65504, 65505, 3e38, -3e38], "f4")
    with np.errstate(over="ignore"):
        for dtype in ("f2", ml_dtypes.bfloat16):
            assert_same(round_trip([large, large.astype(dtype)]), [large, large.astype(dtype)])


GRID = np.arange(24, dtype="f4").reshape(4, 6)


@pytest.mark.parametrize(
    "array",
    [
        GRID.T,
        GRID[::2, ::-1],
        GRID[1:3, 2:5],
        np.asfortranarray(GRID),
        np.broadcast_to(GRID[0], (5, 6)),
        np.broadcast_to(np.float32(1), (3, 4)),
        GRID.reshape(2, 2, 3, 2).transpose(0, 3, 1, 2),
        np.arange(5, dtype=">u2"),
        np.arange(5, dtype=">i8")[::-1],
        np.linspace(0, 1, 7, dtype=">f4"),
        np.linspace(0, 1, 7).astype(">f2").reshape(7, 1).T,
        np.array(["a", "bc"], ">U3"),
        np.array(["2020-01-01"], ">M8[s]"),
        np.ndarray((2, 3), ">U0"),
        np.ndarray((2, 3), "S0").T,
        np.frombuffer(b"\0" + GRID.tobytes(), "f4", offset=1, count=6),  # not aligned
        np.arange(4)
        .astype(ml_dtypes.bfloat16)
        .view(np.dtype(ml_dtypes.bfloat16).newbyteorder(">")),
    ],
)
def test_layouts_and_byte_orders(array: Any) -> None:
    before = array.copy()
    found = contiguous(array)
    assert found.flags.c_contiguous
    assert found.flags.aligned
    assert found.dtype.isnative
    assert found.shape == array.shape
    assert np.array_equal(found, array)
    assert contiguous(found) is found
    assert_same(round_trip([array]), [array])
    assert np.array_equal(array, before)


def test_contiguous_keeps_a_plain_array() -> None:
    for array in (GRID.copy(), np.array(1.0), np.zeros((0, 3)), np.arange(3, dtype="<i2")):
        assert contiguous(array) is array


def test_flatten_copies_nothing() -> None:
    array = np.arange(10)
    flat = flatten({"whole": array, "part": array[::2]})
    assert flat.arrays[0] is array
    assert np.shares_memory(flat.arrays[1], array)


def test_stored_size_follows_the_slice() -> None:
    flat = flatten(np.zeros(1_000_000)[:1000])
    assert contiguous(flat.arrays[0]).nbytes == 8000


def test_the_schema_holds_no_values() -> None:
    assert (
        flatten({"lr": 0.1, "a": np.ones(3)}).schema == flatten({"lr": 9, "a": np.ones(3)}).schema
    )


def test_numpy_memmap(tmp_path: pathlib.Path) -> None:
    mapped = np.memmap(tmp_path / "data", "f4", "w+", shape=(3,))
    mapped[:] = 1
    plain = contiguous(mapped)
    assert type(plain) is np.ndarray
    assert np.shares_memory(plain, mapped)
    back = round_trip({"a": mapped})
    assert_same(back, {"a": np.ones(3, "f4")})


# Sharing


def test_the_same_array_twice() -> None:
    a = np.arange(4.0)
    flat = flatten([a, {"b": a}])
    assert len(flat.arrays) == 1
    back = round_trip([a, {"b": a}])
    assert back[0] is back[1]["b"]


def test_views_of_the_same_memory() -> None:
    a = np.arange(6.0)
    whole = [a[:], a, a.view(), a.reshape(2, 3), a.reshape(2, 3)]
    flat = flatten(whole)
    assert len(flat.arrays) == 2
    back = round_trip(whole)
    assert back[0] is back[1] is back[2]
    assert back[3] is back[4]
    assert_same(back, whole)


def test_views_through_other_owners() -> None:
    memory = bytearray(32)
    a = np.frombuffer(memory, "f8")
    b = np.frombuffer(memoryview(memory), "f8")
    owner = np.arange(4.0)
    c = np.frombuffer(owner.data, "f8")
    back = round_trip([owner, a, b, c, owner[:], np.zeros(4)])
    assert back[1] is back[2]
    assert back[0] is back[3] is back[4]
    assert len({id(leaf) for leaf in back}) == 3


def test_partial_overlap_is_stored_apart() -> None:
    a = np.arange(6.0)
    parts = [a, a[:5], a[1:], a[::2], a.view("i8"), a.view(">f8"), a[::-1]]
    flat = flatten(parts)
    assert len(flat.arrays) == len(parts)
    assert_same(round_trip(parts), parts)


def test_equal_but_separate_arrays_are_not_shared() -> None:
    back = round_trip([np.ones(3), np.ones(3)])
    assert back[0] is not back[1]


def test_empty_arrays_are_shared_only_if_they_are_one() -> None:
    a = np.zeros((0, 3))
    flat = flatten([a, a, a[:], np.zeros((0, 3))])
    assert len(flat.arrays) == 3
    back = round_trip([a, a, a[:]])
    assert back[0] is back[1]
    assert back[2] is not back[0]
    memory = bytearray()
    assert len(flatten([np.ndarray(2, "S0", memory), np.ndarray(2, "S0", memory)]).arrays) == 2


def test_no_address_is_mistaken_when_memory_is_used_again() -> None:
    for _ in range(20):
        tree = [np.full(1000, i, "f4") for i in range(50)]
        flat = flatten(tree)
        del tree
        gc.collect()
        assert len(flat.arrays) == 50
        assert [array[0] for array in flat.arrays] == list(range(50))


# Plain values


@given(values())
def test_plain_values(value: Any) -> None:
    assert_same(round_trip({"v": value}), {"v": value})


def test_pcg64_and_mersenne_twister_states() -> None:
    for generator in (np.random.PCG64(1), np.random.MT19937(1), np.random.Philox(1)):
        state = {"rng": generator.state, "old": np.random.RandomState(3).get_state()}
        assert_same(round_trip(state), state)


def test_python_random_state() -> None:
    state = random.Random(1).getstate()
    assert_same(round_trip(state), state)


def test_large_steps_and_integers() -> None:
    state = {"step": 10001.0, "n": np.int64(2**62), "big": 2**128 - 1, "less": -(2**64)}
    assert_same(round_trip(state), state)


def test_a_bytearray_comes_back_as_bytes() -> None:
    assert_same(round_trip([bytearray(b"abc")]), [b"abc"])
