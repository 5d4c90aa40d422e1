from __future__ import annotations

import collections
import enum
import fractions
import random
import struct
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
from ckptz.errors import FormatError, UnsupportedTypeError
from ckptz.rebuild import _class_like
from ckptz.schema import Schema
from ckptz.state import flatten, unflatten
from trees import Plain, Point, assert_same, round_trip


@pytest.mark.parametrize(
    "tree",
    [
        {},
        [],
        (),
        None,
        np.float32(1),
        OrderedDict(),
        Counter(),
        defaultdict(list),
        defaultdict(None, {"a": 1}),
        {"a": 0, "b": {}},
        {0: 1, "0": 2, -1: 3, "-1": 4},
        {"a.b": 1, "a": {"b": 2}, "a/b": 3, "": 4, "/": 5, "../x": 6, "\n": 7, "\0": 8},
        {"__metadata__": 1, "_metadata": 2, "é": 3, "\ud800": 4, "~": 5, 2**64 - 1: 6},
        {"b": 1, "a": 2},
        Counter({"x": 3, "y": -1, 5: 0}),
        [(), [()], {"x": ((),)}],
    ],
)
def test_containers(tree: Any) -> None:
    assert_same(round_trip(tree), tree)


def test_ordered_dict_with_metadata() -> None:
    tree: Any = OrderedDict(weight=np.ones(2), _metadata=5)
    tree._metadata = OrderedDict({"": {"version": 1}, "bn": {"version": 2, "data": np.zeros(1)}})
    assert_same(round_trip({"model": tree}), {"model": tree})
    none: Any = OrderedDict()
    none._metadata = None
    assert_same(round_trip(none), none)


def test_default_dict_goes_on() -> None:
    back = round_trip(defaultdict(int, a=1))
    back["b"] += 1
    assert back == {"a": 1, "b": 1}


def test_named_tuples() -> None:
    point = Point(1, np.ones(2))
    assert_same(round_trip([point, point], types=[Plain, Point]), [point, point])
    back = round_trip({"p": Plain(1, 2), "q": point})
    assert type(back["p"]).__name__ == "Plain"
    assert type(back["p"]) is not Plain
    assert back["p"]._fields == ("a", "count")
    assert back["p"] == (1, 2)
    assert back["q"].x == 1
    assert type(round_trip(back)["p"]) is type(back["p"])
    other: Any = type(back["q"])._make([1, 2])
    assert type(round_trip(other, types=[Point])) is Point
    fewer = SAME_NAME(1)
    assert type(round_trip(fewer, types=[Point])) is not Point
    assert round_trip(collections.namedtuple("None_", [])()) == ()


SAME_NAME: Any = collections.namedtuple("Point", ["x"])  # type: ignore[name-match]


class Odd(tuple):  # type: ignore[type-arg]
    __slots__ = ()
    _fields = ("class", "0")


class Ligatures(tuple):  # type: ignore[type-arg]
    __slots__ = ()
    _fields = ("fi", "\ufb01")


@pytest.mark.parametrize("cls", [Odd, Ligatures])
def test_named_tuples_that_no_class_can_be_like(cls: Any) -> None:
    tree = [cls((1, 2))]
    assert_same(round_trip(tree), [(1, 2)])
    assert_same(round_trip(tree, types=[cls]), tree)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("__import__('os')", ("a",)),
        ("P", ("a): pass\nimport os\n#",)),
        ("class", ("a",)),
        ("P", ("_x",)),
        ("P", ("__class__",)),
        ("P", ("",)),
        ("", ()),
        ("P", tuple(f"f{i}" for i in range(2000))),
    ],
)
def test_names_from_a_file_are_only_names(name: str, fields: tuple[str, ...]) -> None:
    assert _class_like(name, fields) is tuple


def test_types_must_be_named_tuples() -> None:
    with pytest.raises(TypeError, match="types: dict is not"):
        round_trip({}, types=[dict])


def test_counts_that_do_not_suit_the_schema() -> None:
    flat = flatten([1, np.ones(2)])
    schema = Schema.parse(flat.schema)
    for arrays_, values_ in (([], [1]), (flat.arrays, []), (flat.arrays, [1, 2])):
        with pytest.raises(FormatError, match="1 tensors and 1 values"):
            unflatten(schema, arrays_, values_)


def test_a_torch_size_of_other_things() -> None:
    schema = Schema.parse(Schema.encode([(None, 7, 1), (None, 16)]))
    for value in (1.0, "a", None, True):
        with pytest.raises(FormatError, match=r"torch\.Size"):
            unflatten(schema, [], [value], as_numpy=True)
    assert unflatten(schema, [], [3], as_numpy=True) == (3,)


# What is refused


class Color(enum.IntEnum):
    RED = 1


class MyDict(dict[str, Any]):
    pass


class Slots:
    pass


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (fractions.Fraction(1), "type fractions.Fraction; convert it to a plain number or array"),
        (Color.RED, "Color; convert it to a plain int"),
        (MyDict(), "MyDict; convert it to a plain dict"),
        (Slots(), "Slots; convert it to a plain number or array"),
        ({1}, "type set; convert it to a plain list"),
        (range(3), "type range; convert it to a plain list"),
        ((n for n in range(3)), "type generator; convert it to a plain list"),
        (np.random.default_rng(0), "Generator; store its `bit_generator.state`"),
        (np.random.RandomState(0), "RandomState; store what its `get_state()` returns"),
        (random.Random(0), "type random.Random; store what its `getstate()` returns"),
        (np.array([None]), "numpy.ndarray; arrays of dtype object are not stored"),
        (np.zeros(2, [("a", "f4")]), "numpy.ndarray; arrays of dtype"),
        (np.zeros(2, "V3"), "arrays of dtype"),
        (np.ma.masked_array([1]), "MaskedArray; convert it to a plain array"),
        (np.zeros(1, [("a", "f4")])[0], "type numpy.void; convert it"),
        (np.float32, "type type; convert"),
        (defaultdict(lambda: 0), "its factory must be None or one of bool, int"),
        (defaultdict(Slots), "its factory must be None or one of"),
        (np.broadcast_to(np.int8(0), (2**49,)), "it is too large"),
    ],
)
def test_types_that_are_not_stored(value: Any, message: str) -> None:
    with pytest.raises(UnsupportedTypeError) as caught:
        flatten({"optimizer": [{"lr": value}]})
    assert str(caught.value).startswith("optimizer/0/lr: cannot store ")
    assert message in str(caught.value)


def test_the_states_of_generators_are_stored(tmp_path: Path) -> None:
    """What the messages above advise."""
    made = np.random.default_rng(0), np.random.RandomState(0), random.Random(0)
    state = [made[0].bit_generator.state, made[1].get_state(), made[2].getstate()]
    ckptz.save_file(state, tmp_path / "one.ckptz")
    assert_same(ckptz.load_file(tmp_path / "one.ckptz"), state)


def test_the_state_itself_is_refused() -> None:
    with pytest.raises(
        UnsupportedTypeError, match="the state itself: cannot store a value of type"
    ):
        flatten(fractions.Fraction(1))


@pytest.mark.parametrize("key", [True, 1.0, None, (1, 2), b"a", np.int64(1), Color.RED, 2**64])
def test_keys_that_are_not_stored(key: Any) -> None:
    with pytest.raises(UnsupportedTypeError, match=r"^model/x: cannot store "):
        flatten({"model": {"x": {key: 1}}})


def test_a_key_that_is_too_long() -> None:
    assert flatten({"é" * 2**19: 1}).values == [1]
    with pytest.raises(UnsupportedTypeError, match=r"the state itself: .* more than 2"):
        flatten({"é" * 2**19 + "a": 1})


def test_cycles_and_depth() -> None:
    loop: list[Any] = [1]
    loop.append({"again": loop})
    with pytest.raises(UnsupportedTypeError, match=r"^1/again: .* contains itself"):
        flatten(loop)
    wide: list[Any] = []
    wide.extend([wide] * 10)
    with pytest.raises(UnsupportedTypeError, match="contains itself"):
        flatten(wide)
    deep: Any = 1
    for _ in range(32):
        deep = [deep]
    assert_same(round_trip(deep), deep)
    with pytest.raises(UnsupportedTypeError, match="more than 32 containers"):
        flatten([deep])


def test_a_container_may_be_met_twice() -> None:
    inner = {"a": 1}
    assert round_trip([inner, inner]) == [inner, inner]


def test_the_same_limits_as_a_reader_has() -> None:
    with pytest.raises(UnsupportedTypeError, match="key paths"):
        flatten({"a" * 2**20: [None] * 2000})
    classes = [collections.namedtuple(f"P{i}", [])() for i in range(4097)]
    Schema.parse(flatten(classes[:-1]).schema)
    with pytest.raises(UnsupportedTypeError, match="more than 4096"):
        flatten(classes)


def test_import_is_light() -> None:
    code = "import sys, ckptz.state; print([m for m in ('torch', 'ml_dtypes') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_floats_of_every_kind() -> None:
    bits = (0x7FF8000000000001, 0xFFF0000000000001, 0x8000000000000000, 1, 0x7FF0000000000000)
    tree = [struct.unpack("<d", struct.pack("<Q", value))[0] for value in bits]
    assert_same(round_trip(tree), tree)
