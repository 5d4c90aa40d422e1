from __future__ import annotations

import random
import time
from typing import Any

import msgspec
import pytest
from ckptz.errors import FormatError
from ckptz.schema import Leaf, Schema
from ckptz.state import flatten
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.msgpack import Ext
from trees import mutated, trees

F32 = (17, "float32", (2, 3), 0)
EXAMPLE: list[tuple[Any, ...]] = [
    (None, 0, 4),
    ("a", *F32),
    (0, 3, 2, "Point", ("x", "y")),
    (None, 16),
    (None, 17, "complex64", (2,), 1, (4,), (2,)),
    ("o", 4, 1, 1),
    ("w", 18, 0),
    (None, 0, 1),
    ("version", 16),
    ("0", 6, 0, "list"),
]


def wire(nodes: Any) -> bytes:
    return msgspec.msgpack.encode(nodes)


def value_paths(schema: Schema) -> list[str]:
    return [leaf.path for leaf in schema.leaves(attributes=True) if leaf.kind == "value"]


def test_what_a_schema_tells() -> None:
    schema = Schema.parse(wire(EXAMPLE))
    assert schema.nodes == tuple(EXAMPLE)
    assert schema.raw == Schema.encode(EXAMPLE) == wire(EXAMPLE)
    first, second = schema.tensors
    assert (first.path, first.keys, first.dtype, first.shape) == ("a", ("a",), "float32", (2, 3))
    assert (first.flavour, first.global_shape, first.offset) == (0, (2, 3), (0, 0))
    assert (first.itemsize, first.element_type) == (4, "f32")
    assert (second.path, second.keys, second.flavour) == ("0/y", (0, "y"), 1)
    assert (second.itemsize, second.element_type) == (8, "f32")
    assert (second.global_shape, second.offset) == ((4,), (2,))
    assert schema.value_count == 2
    assert value_paths(schema) == ["0/x", "o/~4/version"]
    leaves = [Leaf("a", "tensor", 0), Leaf("0/x", "value", 0), Leaf("0/y", "tensor", 1)]
    assert list(schema.leaves()) == [*leaves, Leaf("o/w", "shared", 0)]
    assert list(schema.leaves(attributes=True))[-1] == Leaf("o/~4/version", "value", 1)


def test_a_schema_is_immutable() -> None:
    schema = Schema.parse(wire(EXAMPLE))
    with pytest.raises(AttributeError):
        schema.raw = b""  # type: ignore[misc]
    with pytest.raises(AttributeError):
        schema.tensors[0].dtype = "float64"  # type: ignore[misc]


def nested(depth: int) -> list[tuple[Any, ...]]:
    return [(None, 1, 1)] * depth + [(None, 16)]


BAD: list[tuple[Any, str]] = [
    ([], "0 nodes"),
    ([()], "node 0: tag -1"),
    ([(None,)], "node 0: tag -1"),
    ([(None, 99)], "node 0: tag 99"),
    ([(None, "16")], "node 0: tag '16'"),
    ([(None, 16, 0)], "node 0: tag 16 in a node of length 3"),
    ([(None, 17, "float32", (), 0, ())], "node 0: tag 17 in a node of length 6"),
    ([("a", 16)], "node 0: a root with a key"),
    ([(None, 16), (None, 16)], "node 1: a second root"),
    ([(None, 0, 2), ("a", 16), ("a", 16)], "node 2: duplicate key 'a'"),
    ([(None, 0, 2), (1, 16), (1, 16)], "node 2: duplicate key 1"),
    ([(None, 5, 2), ("a", 16), ("a", 16)], "node 2: duplicate key 'a'"),
    ([(None, 0, 1), (None, 16)], "node 1: no key"),
    ([(None, 0, 1), (("a",), 16)], "node 1: a key"),
    ([(None, 0, 1), ("a" * (2**20 + 1), 16)], "node 1: a key that is too long"),
    ([(None, 1, 1), (0, 16)], "node 1: key 0 where there is none"),
    ([(None, 4, 0, 1), ("_metadata", 16)], "node 1: key '_metadata' where there is none"),
    ([(None, 4, 1, 1), (None, 16), (None, 16)], "node 1: no key"),
    ([(None, 4, 0, 2)], "node 0: 2 attributes"),
    ([(None, 4, 0, None)], "node 0: None attributes"),
    ([(None, 4, 0, 1)], "node 0: 0 children, but 0 nodes follow"),
    ([(None, 0, 1)], "node 0: 1 children, but 0 nodes follow"),
    ([(None, 0, -1)], "node 0: -1 children"),
    ([(None, 0, None)], "node 0: None children"),
    ([(None, 0, 2**64 - 1), ("a", 16)], "children, but 1 nodes follow"),
    ([(None, 1, 2), (None, 1, 1), (None, 16)], "node 2: the last one, but 1 children are missing"),
    ([(None, 6, 0, "open")], "node 0: unknown factory 'open'"),
    ([(None, 6, 0, 1)], "node 0: unknown factory 1"),
    ([(None, 3, 0, "P", None)], "node 0: a named tuple whose names are not text"),
    ([(None, 3, 0, 1, ())], "node 0: a named tuple whose names are not text"),
    ([(None, 3, 1, "P", (1,)), (None, 16)], "node 0: a named tuple whose names are not text"),
    ([(None, 3, 1, "P", ()), (None, 16)], "node 0: 1 children, 0 different field names"),
    ([(None, 3, 2, "P", ("a", "a")), (None, 16), (None, 16)], "2 children, 1 different"),
    ([(None, 7, 1), (None, *F32)], "node 1: a child of a torch.Size"),
    ([(None, 7, 1), (None, 1, 0)], "node 1: a child of a torch.Size"),
    ([(None, 18, 0)], "node 0: shares tensor 0, 0 stand before it"),
    ([(None, 1, 2), (None, *F32), (None, 18, 1)], "node 2: shares tensor 1"),
    ([(None, 1, 2), (None, *F32), (None, 18, -1)], "node 2: shares tensor -1"),
    ([(None, 1, 2), (None, *F32), (None, 18, None)], "node 2: shares tensor None"),
    ([(None, 17, "object", (), 0)], "node 0: unknown dtype 'object'"),
    ([(None, 17, None, (), 0)], "node 0: unknown dtype None"),
    ([(None, 17, "int8", (), 2)], "node 0: unknown flavour 2"),
    ([(None, 17, "int8", 3, 0)], "node 0: shape or offset 3"),
    ([(None, 17, "int8", ("3",), 0)], "node 0: shape or offset"),
    ([(None, 17, "int8", (-1,), 0)], "node 0: shape .* is negative or too large"),
    ([(None, 17, "int8", (2**48 + 1,), 0)], "too large"),
    ([(None, 17, "int16", (2**24, 2**24), 0)], "too large"),
    ([(None, 17, "int16", (0, 2**40, 2**40), 0)], "too large"),
    ([(None, 17, "<U0", (2**40, 2**40), 0)], "too large"),
    ([(None, 17, "int8", (1,) * 65, 0)], "too large"),
    ([(None, 17, "int8", (2,), 0, (2,), (0,))], "add nothing"),
    ([(None, 17, "int8", (2,), 0, (3,), (2,))], "is not within"),
    ([(None, 17, "int8", (2,), 0, (3,), (-1,))], "is not within"),
    ([(None, 17, "int8", (2,), 0, (3, 1), (0, 0))], "is not within"),
    ([(None, 17, "int8", (2,), 0, (2**50,), (0,))], "too large"),
    ([(None, 17, "int8", (2,), 0, None, (0,))], "shape or offset None"),
    ([(Ext(3, b"a"), 16)], "valid text as an extension type"),
    ([(Ext(3, b"\xff"), 16)], "not even UTF-8"),
    ([(Ext(1, bytes(9)), 16)], "unknown extension type 1"),
    ([(None, 16.0)], "float"),
    ([(None, True)], "bool"),
    ([(None, b"")], "bytes"),
    ([{}], "object"),
    ({}, "object"),
    (nested(33), "node 32: more than 32 containers"),
]


@pytest.mark.parametrize(("nodes", "message"), BAD)
def test_what_is_refused(nodes: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        Schema.parse(wire(nodes))
    assert str(caught.value).startswith("schema: ")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\x91",
        wire(EXAMPLE) + b"\0",
        wire(EXAMPLE)[:-1],
        b"\xdc\x00\x01\x92\xc0\x10",
        b"\x91\x92\xc0\xcc\x10",
        b"\x91\x92\xc0\xca\x41\x80\x00\x00",
        b"\x91" * 10**6,
        b"\xdd\xff\xff\xff\xff",
        b"\x91\xdd\xff\xff\xff\xff\xc0",
        b"\x91\x92\xdb\xff\xff\xff\xff",
        b"\x91\x92\xa1\xff\x10",
        b"\x91\x92\xd6\xff\0\0\0\0\x10",
    ],
)
def test_bytes_that_are_no_schema(blob: bytes) -> None:
    with pytest.raises(FormatError, match="schema: "):
        Schema.parse(blob)


def test_depth_of_32_is_allowed() -> None:
    assert value_paths(Schema.parse(wire(nested(32)))) == ["/".join(["0"] * 32)]


def test_keys_that_are_not_unicode() -> None:
    nodes = [(None, 0, 2), ("\ud800", 3, 1, "P\udfff", ("\ud801",)), (None, *F32), ("é", 16)]
    blob = Schema.encode(nodes)
    schema = Schema.parse(blob)
    assert schema.nodes == tuple(nodes)
    assert schema.tensors[0].keys == ("\ud800", "\ud801")
    assert Schema.encode(schema.nodes) == blob


def test_long_key_paths_are_limited_in_all() -> None:
    # A megabyte of key above many leaves: a small file, but a terabyte of key paths.
    nodes = [(None, 0, 1), ("a" * 2**20, 1, 2000)] + [(None, 16)] * 2000
    with pytest.raises(FormatError, match="key paths of more than"):
        Schema.parse(wire(nodes))


def test_classes_of_named_tuples_are_limited() -> None:
    nodes: list[Any] = [(None, 1, 4097)] + [(None, 3, 0, f"P{i}", ()) for i in range(4097)]
    with pytest.raises(FormatError, match="node 4097: more than 4096 classes"):
        Schema.parse(wire(nodes))


def parse_or_refuse(blob: bytes) -> None:
    start = time.process_time()
    try:
        schema = Schema.parse(blob)
        assert Schema.encode(schema.nodes) == blob
        assert len(list(schema.leaves(attributes=True))) >= len(schema.tensors)
    except FormatError:
        pass
    assert time.process_time() - start < 2


@given(st.binary(max_size=200))
def test_any_bytes_give_a_schema_or_a_format_error(blob: bytes) -> None:
    parse_or_refuse(blob)


ATOMS = st.one_of(
    st.none(),
    st.integers(-2, 20),
    st.sampled_from([2**63, 2**64 - 1, 16, 17, 18, 2**48]),
    st.sampled_from(["", "a", "float32", "list", "<U3"]),
    st.lists(st.one_of(st.integers(0, 4), st.sampled_from(["a", "b"])), max_size=3),
)


@given(st.lists(st.tuples(ATOMS, st.integers(0, 19), ATOMS, ATOMS, ATOMS, ATOMS), max_size=8))
@settings(max_examples=300)
def test_any_nodes_give_a_schema_or_a_format_error(nodes: list[tuple[Any, ...]]) -> None:
    cut = {0: 3, 1: 3, 2: 3, 3: 5, 4: 4, 5: 3, 6: 4, 7: 3, 16: 2, 17: 5, 18: 3}
    parse_or_refuse(wire([node[: cut.get(node[1], 6)] for node in nodes]))


@given(trees(), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_a_mutated_schema_gives_a_schema_or_a_format_error(tree: Any, rng: random.Random) -> None:
    blob = flatten(tree).schema
    for _ in range(20):
        parse_or_refuse(mutated(blob, rng))


@pytest.mark.parametrize(
    "nodes",
    [
        [(None, 1, 200_000)] + [(None, 16)] * 200_000,
        [(None, 3, 50_000, "P", tuple(map(str, range(50_000))))] + [(None, 16)] * 50_000,
        [(None, 1, 1)] * 200_000,
        [(None, 17, "int8", tuple(range(200_000)), 0)],
        [(None, 0, 100_000)] + [(i << 44, 16) for i in range(100_000)],
    ],
    ids=["wide", "names", "deep", "dimensions", "keys"],
)
def test_large_schemas_take_little_time(nodes: Any) -> None:
    parse_or_refuse(wire(nodes))
