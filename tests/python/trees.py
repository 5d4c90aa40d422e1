"""States for tests: round trips, bitwise comparison, and Hypothesis strategies."""

from __future__ import annotations

import math
import random
import struct
from collections import Counter, OrderedDict, defaultdict, namedtuple
from typing import Any, NamedTuple

import ml_dtypes
import msgspec
import numpy as np
from ckptz import dtypes, schema, state
from hypothesis import strategies as st


class Point(NamedTuple):
    """A named tuple that restores may be told of."""

    x: object
    y: object


Plain = namedtuple("Plain", ["a", "count"])

DTYPES = [
    *"bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split(),  # noqa: SIM905
    *"float16 float32 float64 complex64 complex128 <f16 <c32".split(),  # noqa: SIM905
    *"<U5 |S3 <M8 <M8[ns] <M8[25s] <m8[D] <U0 |S0".split(),  # noqa: SIM905
    *(name for name in dir(ml_dtypes) if dtypes.layout(name) is not None),
]


def round_trip(tree: object, **options: Any) -> Any:
    """Take a state through its flat form, its arrays copied as a file would hold them."""
    flat = state.flatten(tree)
    parsed = schema.Schema.parse(flat.schema)
    assert schema.Schema.encode(parsed.nodes) == flat.schema
    arrays = []
    for node, array in zip(parsed.tensors, flat.arrays, strict=True):
        plain = state.contiguous(array)
        assert plain.nbytes == node.itemsize * math.prod(node.shape)
        assert plain.dtype == dtypes.numpy_dtype(node.dtype)
        arrays.append(np.ndarray(node.shape, plain.dtype, bytearray(plain.tobytes())))
    packed = msgspec.msgpack.encode(schema.encode_values(flat.values))
    values = schema.decode_values(msgspec.msgpack.decode(packed))
    return state.unflatten(parsed, arrays, values, **options)


def assert_same(left: Any, right: Any) -> None:
    """Check that two states agree in type and in every bit; arrays' byte order aside."""
    assert type(left) is type(right), (left, right)
    if isinstance(left, np.ndarray):
        left, right = state.contiguous(left), state.contiguous(right)
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert left.tobytes() == right.tobytes()
    elif isinstance(left, dict):
        assert list(map(type, left)) == list(map(type, right))
        assert list(left) == list(right)
        for key in left:
            assert_same(left[key], right[key])
        if isinstance(left, OrderedDict):
            assert vars(left).keys() == vars(right).keys()
            assert_same(vars(left).get("_metadata"), vars(right).get("_metadata"))
        if isinstance(left, defaultdict):
            assert left.default_factory is right.default_factory
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    else:
        assert_same_value(left, right)


def assert_same_value(left: Any, right: Any) -> None:
    """Check that two plain values agree in every bit."""
    if isinstance(left, np.generic):
        assert dtypes.scalar_bytes(left) == dtypes.scalar_bytes(right)
    elif isinstance(left, float | complex):
        pair = struct.Struct("<dd")
        left, right = complex(left), complex(right)
        assert pair.pack(left.real, left.imag) == pair.pack(right.real, right.imag)
    else:
        assert left == right


@st.composite
def arrays(draw: st.DrawFn, names: list[str] = DTYPES) -> np.ndarray[Any, Any]:
    """Draw an array of any dtype, shape, layout and byte order, with any bits."""
    dtype = dtypes.numpy_dtype(draw(st.sampled_from(names)))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    size = math.prod(shape) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype.kind == "b":
        data = bytes(byte & 1 for byte in data)
    if dtype.kind == "U":
        data = b"".join(struct.pack("<I", 32 + byte) for byte in data[::4])
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, bytearray(data))
    layout = draw(st.sampled_from(["C", "F", "reversed", "broadcast", "swapped"]))
    if layout == "F":
        array = np.asfortranarray(array) if shape else array
    elif layout == "reversed" and shape:
        array = array[::-1]
    elif layout == "broadcast":
        array = np.broadcast_to(array, (2, *shape))
    elif layout == "swapped":
        array = array.astype(array.dtype.newbyteorder(">"))
    return array


def texts() -> st.SearchStrategy[str]:
    """Text with anything in it, lone surrogates too."""
    anything = st.characters(exclude_categories=(), codec=None)
    odd = ["", "/", "~", "../x", "a.b", "\n", "\0", "0", "-0", "-1", "00", "__metadata__", "~2"]
    return st.one_of(st.text(anything, max_size=8), st.sampled_from(odd), st.text("ab", max_size=2))


def keys() -> st.SearchStrategy[Any]:
    """Draw keys of dicts."""
    return st.one_of(texts(), st.integers(-3, 3), st.integers(-(2**63), 2**64 - 1))


@st.composite
def scalars(draw: st.DrawFn) -> Any:
    """Draw NumPy scalars of every dtype."""
    array = draw(arrays().filter(lambda array: array.size > 0 and array.itemsize > 0))
    return state.contiguous(array).reshape(-1)[0]


def values() -> st.SearchStrategy[Any]:
    """Draw plain values."""
    bits = st.binary(min_size=8, max_size=8)
    return st.one_of(
        st.sampled_from([None, True, False, -0.0, math.inf, -math.inf]),
        st.integers(),
        st.integers(-(2**200), 2**200),
        bits.map(lambda data: struct.unpack("<d", data)[0]),
        st.tuples(bits, bits).map(lambda pair: complex(*struct.unpack("<dd", b"".join(pair)))),
        texts(),
        st.binary(max_size=8),
        scalars(),
    )


def _containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    mapping = st.dictionaries(keys(), children, max_size=4)
    factories = st.sampled_from(
        [None, int, float, list, dict, set, str, bytes, tuple, complex, bool]
    )
    return st.one_of(
        mapping,
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.builds(Point, children, children),
        mapping.map(OrderedDict),
        st.builds(_with_metadata, mapping, children),
        st.dictionaries(keys(), children, max_size=3).map(_counter),
        st.builds(defaultdict, factories, mapping),
    )


def _with_metadata(mapping: dict[Any, Any], metadata: Any) -> OrderedDict[Any, Any]:
    made = OrderedDict(mapping)
    made._metadata = metadata  # type: ignore[attr-defined]
    return made


def _counter(mapping: dict[Any, Any]) -> Counter[Any]:
    made: Counter[Any] = Counter()
    dict.update(made, mapping)
    return made


def trees(leaves: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[Any]:
    """Draw whole states."""
    if leaves is None:
        leaves = st.one_of(values(), arrays())
    return st.recursive(leaves, _containers, max_leaves=12)


def mutated(blob: bytes, rng: random.Random) -> bytes:
    """Change a few bytes."""
    changed = bytearray(blob)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed)) if changed else 0
        kind = rng.randrange(4)
        if kind == 0 and changed:
            changed[at] = rng.randrange(256)
        elif kind == 1 and changed:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            changed[at:at] = rng.choice(
                [b"\x91", b"\xdd\xff\xff\xff\xff", b"\xc0", b"\xd4\x03\xff"]
            )
        else:
            del changed[at : at + rng.randint(1, 4)]
    return bytes(changed)
