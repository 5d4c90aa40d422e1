"""Arrays coded without a store: `ckptz.codec.encode` and `decode`."""

from __future__ import annotations

from typing import Any

import ckptz
import evolving
import ml_dtypes
import numpy as np
import pytest
import stores
from ckptz import Policy, Rule, codec, state
from hypothesis import given
from hypothesis import strategies as st
from trees import DTYPES

BASE = stores.weights(0, (300,))
TARGET = BASE + np.float32(0.01) * stores.weights(1, (300,))


def round_trip(target: Any, base: Any, rule: Any = "lossy", **options: Any) -> Any:
    """Decode what is encoded; the writer's base and the reader's array must agree in every bit."""
    written = None if base is None else base.copy()
    kept = np.asarray(target).tobytes()
    data = codec.encode(target, written, rule, **options)
    assert np.asarray(target).tobytes() == kept
    read = None if base is None else base.copy()
    found = codec.decode(data, read)
    if base is None:
        assert found.tobytes() == state.contiguous(np.asarray(target)).tobytes()
    else:
        assert found is read
        assert written is not None
        assert found.tobytes() == written.tobytes()
    return found


@stores.examples(150)
@given(
    st.integers(0, 2**32),
    st.sampled_from(evolving.FLOATS + evolving.OTHERS),
    st.sampled_from(evolving.SHAPES),
    st.one_of(st.just("exact"), evolving.policies()),
    st.sampled_from(["near", "far", "bits", "same"]),
    st.booleans(),
)
def test_any_array(
    seed: int, dtype: str, shape: tuple[int, ...], rule: Any, how: str, with_base: bool
) -> None:
    rng = np.random.default_rng(seed)
    base = evolving.normal(rng, dtype, shape)
    target = base
    if how != "same":
        target = (evolving.random_bits if how == "bits" else evolving.normal)(rng, dtype, shape)
    if how == "near" and dtype in evolving.FLOATS:
        target = np.asarray(base + target * np.asarray(0.01).astype(base.dtype))
    target = np.asarray(target).astype(base.dtype)
    found = round_trip(target, base if with_base else None, rule, threads=1 + seed % 2)
    if rule == "exact" or not with_base or dtype not in evolving.FLOATS:
        assert found.tobytes() == target.tobytes()


@pytest.mark.parametrize("name", sorted(set(DTYPES)))
def test_every_dtype_exactly(name: str) -> None:
    if name in ("<U0", "|S0"):
        array = np.ndarray((3,), name)
    else:
        array = evolving.random_bits(np.random.default_rng(0), name, (3, 5))
    found = round_trip(array, None)
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.flags.writeable


def test_rules_and_names() -> None:
    sizes = [
        len(codec.encode(TARGET, BASE.copy(), rule))
        for rule in ("exact", Policy.lossy(7), Rule(levels=1))
    ]
    assert sizes == sorted(sizes, reverse=True)
    with pytest.raises(ckptz.PolicyError):
        codec.encode(TARGET, BASE.copy(), "lossless")


def test_a_buffer_of_the_caller() -> None:
    expected = bytes(codec.encode(TARGET, BASE.copy()))
    room = bytearray(5000)
    used = codec.encode(TARGET, BASE.copy(), out=room)
    assert isinstance(used, memoryview)
    assert bytes(used) == expected == bytes(room[: len(expected)])
    exact = bytearray(len(expected))
    assert bytes(codec.encode(TARGET, BASE.copy(), out=exact)) == expected
    array = np.zeros(len(expected) + 3, np.uint8)
    assert bytes(codec.encode(TARGET, BASE.copy(), out=array)) == expected
    for size in (0, 1, 3, 10, len(expected) - 1):
        with pytest.raises(ValueError, match=r"too small|are needed"):
            codec.encode(TARGET, BASE.copy(), out=bytearray(size))
    with pytest.raises(ValueError, match="read-only"):
        codec.encode(TARGET, BASE.copy(), out=memoryview(bytes(9000)))


@pytest.mark.parametrize(
    "base",
    [
        BASE.astype("f8"),
        BASE[:-1].copy(),
        BASE.reshape(30, 10).copy(),
        np.repeat(BASE, 2)[::2],
        BASE.astype(">f4"),
        [1.0] * 300,
        "text",
    ],
    ids=range(7),
)
def test_bases_that_do_not_fit(base: Any) -> None:
    data = codec.encode(TARGET, BASE.copy())
    for use in (lambda: codec.encode(TARGET, base), lambda: codec.decode(data, base)):
        with pytest.raises(ValueError, match="the base must be"):
            use()


def test_bases_that_may_not_be_written() -> None:
    frozen = BASE.copy()
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        codec.encode(TARGET, frozen)
    array = BASE.copy()
    with pytest.raises(ValueError, match="given twice"):
        codec.encode(array, array)
    with pytest.raises(ValueError, match=r"coded against a base"):
        codec.decode(codec.encode(TARGET, BASE.copy()))


def test_what_is_not_stored() -> None:
    for target in (np.array([object()]), np.zeros(2, [("a", "f4"), ("b", "f4")])):
        with pytest.raises(ckptz.UnsupportedTypeError):
            codec.encode(target, None)


def test_lists_and_scalars_are_arrays() -> None:
    assert round_trip([1.5, 2.5], None).tolist() == [1.5, 2.5]
    assert round_trip(3, None).shape == ()
    assert round_trip(np.float32(2), None).dtype == np.float32


@pytest.mark.parametrize("with_base", [False, True])
def test_damage(with_base: bool) -> None:
    good = bytes(codec.encode(TARGET, BASE.copy() if with_base else None))
    base = BASE.copy() if with_base else None
    for data in (
        *(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :] for at in range(len(good))),
        *(good[:length] for length in range(len(good))),
        good + b"\0",
        b"junk" * 50,
    ):
        with pytest.raises(ckptz.FormatError, match=r"^array: "):
            codec.decode(data, base)
    # Bytes that are refused leave the base alone.
    assert base is None or base.tobytes() == BASE.tobytes()


def test_another_base_than_the_writer_s() -> None:
    data = codec.encode(TARGET, BASE.copy())
    with pytest.raises(ckptz.ChecksumError, match="damage, or another base"):
        codec.decode(data, BASE + 1)


def test_what_grows_when_it_is_coded() -> None:
    """Exceptions take their positions too."""
    target = np.full(70_000, np.nan, "f2")
    found = round_trip(target, np.ones(70_000, "f2"), "paper:2")
    assert found.tobytes() == target.tobytes()


def test_threads_make_no_difference() -> None:
    base = stores.weights(0, (200_000,))
    target = base + np.float32(0.01) * stores.weights(1, (200_000,))
    assert codec.encode(target, base.copy(), threads=1) == codec.encode(
        target, base.copy(), threads=3
    )


def test_every_bit_of_bfloat16_neighbours() -> None:
    every = np.arange(2**16, dtype="u2").view(ml_dtypes.bfloat16)
    round_trip(every, np.roll(every, 1))
    round_trip(every, None)


@pytest.mark.parametrize("size", [40, 200_000])
@pytest.mark.parametrize("rule", ["lossy", "exact"])
def test_another_base_is_found_where_nothing_changed(size: int, rule: str) -> None:
    target = stores.weights(0, (size,))
    base = target.copy()
    base[:30] += np.float32(0.01) * (size > 1000)  # of several chunks the first changes
    wrong = base.copy()
    data = codec.encode(target, base.copy(), rule)
    codec.decode(data, base)
    wrong[-1] += 1
    with pytest.raises(ckptz.ChecksumError, match="another base"):
        codec.decode(data, wrong)


def test_bytes_to_read_are_the_arrays_own_memory() -> None:
    whole = np.arange(12, dtype=np.float32)
    for array in (whole, whole[3:7], whole.reshape(3, 4)[1:2], whole[:0], whole[5:6]):
        raw = codec.bytes_to_read(array)
        assert raw.tobytes() == array.tobytes()
        assert np.shares_memory(raw, array) == (array.size > 0)
    # Of views none is one to the core: it would compare each with all others.
    assert not isinstance(codec.bytes_to_read(whole[3:7]).base, np.ndarray)
    whole.flags.writeable = False
    assert codec.bytes_to_read(whole[3:7]).tobytes() == whole[3:7].tobytes()
