"""Restoring into a template: its structure, each leaf checked against it (pytorch#187138)."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ckptz
import evolving
import ml_dtypes
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager
from hypothesis import given
from trees import Point, assert_same, trees

Pair = namedtuple("Pair", ["left", "right"])

STATE = {
    "w": stores.weights(0, (4, 5)),
    "i": np.arange(6, dtype="i4"),
    "b": stores.weights(1, (8,)).astype(ml_dtypes.bfloat16),
    "list": [stores.weights(2, (3,)), 7, {"deep": np.array([True, False])}],
    "text": "hello",
    "scalar": np.float64(2.5),
    "point": Point(stores.weights(3, (2,)), 4),
}


@pytest.fixture
def manager(tmp_path: Path) -> CheckpointManager:
    manager = CheckpointManager(tmp_path)
    manager.save(0, {"w": np.zeros((4, 5), "f4")})
    manager.save(1, STATE)
    return manager


def zeros(tree: Any) -> Any:
    if isinstance(tree, np.ndarray):
        return np.zeros_like(tree)
    if isinstance(tree, dict):
        return {key: zeros(child) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return type(tree)(*map(zeros, tree))
    return [zeros(child) for child in tree] if isinstance(tree, list) else None


def test_the_whole_state(manager: CheckpointManager) -> None:
    like = zeros(STATE)
    assert_same(manager.restore(like=like), STATE)
    assert_same(manager.restore(1, like=STATE), STATE)
    assert not like["w"].any()
    assert_same(like, zeros(STATE))


def test_a_part_in_another_order_and_other_containers(manager: CheckpointManager) -> None:
    shape = SimpleNamespace(shape=(4, 5), dtype=np.dtype("f4"))
    like = OrderedDict(
        {
            "text": 0,
            "list": (np.zeros(3, "f4"),),
            "w": shape,
            "point": {"y": "", "x": np.ones(2, "f4")},
        }
    )
    found = manager.restore(like=like)
    expected = OrderedDict(
        {
            "text": "hello",
            "list": (STATE["list"][0],),
            "w": STATE["w"],
            "point": {"y": 4, "x": STATE["point"].x},
        }
    )
    assert_same(found, expected)
    assert_same(manager.restore(like={}), {})
    assert_same(manager.restore(like=[]), [])


def test_of_a_shorter_list_the_last_items_are_left_out(manager: CheckpointManager) -> None:
    """As keys are that the template lacks; a longer one has items that are not there."""
    assert_same(manager.restore(like={"list": [STATE["list"][0], 0]}), {"list": STATE["list"][:2]})
    assert_same(manager.restore(like={"list": ()}), {"list": ()})
    with pytest.raises(ckptz.MissingKeyError, match=r"has no list/3$"):
        manager.restore(like={"list": [*STATE["list"], 0]})


def test_containers_are_the_template_s(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path) as manager:
        manager.save(0, {"a": {"left": 1, "right": 2}, "b": [3, 4], "c": {"x": 5}, "d": {"x": 6}})
        default: defaultdict[str, Any] = defaultdict(list, x=0)
        like = {"a": Pair(0, 0), "b": (0, 0), "c": default, "d": Counter(x=9)}
        found = manager.restore(like=like)
    assert_same(
        found, {"a": Pair(1, 2), "b": (3, 4), "c": defaultdict(list, x=5), "d": Counter(x=6)}
    )


def test_one_array_is_a_template_too(tmp_path: Path) -> None:
    ckptz.save_file(STATE["w"], tmp_path / "one")
    assert_same(ckptz.load_file(tmp_path / "one", like=np.zeros((4, 5), "f4")), STATE["w"])
    with pytest.raises(ckptz.MismatchError, match=r"^~3: the template has float32 of shape"):
        ckptz.load_file(tmp_path / "one", like=np.zeros(4, "f4"))


@pytest.mark.parametrize("cast", [False, True])
def test_missing_keys_are_all_named(manager: CheckpointManager, cast: bool) -> None:
    like = {"w": STATE["w"], "list": [0, 0, 0, 0], "new": {"a": 1, "b/c": 2}}
    with pytest.raises(ckptz.MissingSnapshotError) as found:
        manager.restore(like=like, cast=cast)
    assert str(found.value) == "step 1 has no list/2, list/3, new/a, new/b~1c"
    with pytest.raises(ckptz.MissingSnapshotError, match=r"and 12 more$"):
        manager.restore(like={f"k{n}": 0 for n in range(20)})
    # It is the template's fault: nothing counts as damaged, and no older snapshot is taken.
    assert manager.all_steps() == [0, 1]
    assert_same(manager.restore(types=[Point]), STATE)


@pytest.mark.parametrize(
    ("key", "like", "text"),
    [
        (
            "w",
            np.zeros((4, 5), "f8"),
            "float64 of shape (4, 5), the snapshot F4",
        ),
        (
            "w",
            np.zeros((5, 4), "f4"),
            "float32 of shape (5, 4), the snapshot F4",
        ),
        ("w", np.zeros(20, "f4"), "float32 of shape (20,), the snapshot F4"),
        ("w", 3.0, "a float, the snapshot F4"),
        ("w", None, "a NoneType, the snapshot F4"),
        ("w", np.float32(1), "a float32, the snapshot F4"),
        ("text", np.zeros(2), "float64 of shape (2,), the snapshot a plain value"),
        ("scalar", np.array(2.5), "float64 of shape (), the snapshot a plain value"),
        ("b", np.zeros(8, "f2"), "float16 of shape (8,), the snapshot bfloat16 of shape (8,)"),
        (
            "w",
            np.zeros((4, 5), "O"),
            "object of shape (4, 5), the snapshot F4",
        ),
    ],
    ids=str,
)
def test_mismatches_name_the_key_path_and_both(
    manager: CheckpointManager, key: str, like: Any, text: str
) -> None:
    text = text.replace("F4", "float32 of shape (4, 5)")
    with pytest.raises(ckptz.MismatchError) as found:
        manager.restore(like={"list": [np.zeros(3, "f4")], key: like})
    assert str(found.value) == f"{key}: the template has {text}"
    assert isinstance(found.value, ckptz.CkptzError)
    assert isinstance(found.value, ValueError)
    assert manager.all_steps() == [0, 1]


def test_casts(manager: CheckpointManager) -> None:
    wide = manager.restore(like={"w": np.zeros((4, 5), "f8")}, cast=True)["w"]
    assert_same(wide, STATE["w"].astype("f8"))
    narrow = manager.restore(like={"w": np.zeros((4, 5), "f2")}, cast=True)["w"]
    assert_same(narrow, STATE["w"].astype("f2"))
    assert_same(
        manager.restore(like={"b": np.zeros(8, "f4")}, cast=True)["b"], STATE["b"].astype("f4")
    )
    assert_same(
        manager.restore(like={"w": np.zeros((4, 5), ml_dtypes.bfloat16)}, cast=True)["w"],
        STATE["w"].astype(ml_dtypes.bfloat16),
    )
    assert_same(
        manager.restore(like={"i": np.zeros(6, "f4")}, cast=True)["i"], np.arange(6, dtype="f4")
    )
    assert_same(
        manager.restore(like={"i": np.zeros(6, "c8")}, cast=True)["i"], np.arange(6, dtype="c8")
    )
    # Byte order is no other dtype.
    assert_same(manager.restore(like={"w": np.zeros((4, 5), ">f4")})["w"], STATE["w"])


@pytest.mark.parametrize(
    ("stored", "like"),
    [
        (np.zeros(3, "f4"), np.zeros(3, "i4")),
        (np.zeros(3, "c8"), np.zeros(3, "f4")),
        (np.zeros(3, "i4"), np.zeros(3, "?")),
        (np.array(["a", "b", "c"]), np.zeros(3, "f4")),
        (np.zeros(3, "M8[s]"), np.zeros(3, "i8")),
        (np.zeros(3, "<U5"), np.zeros(3, "<U9")),
        (np.zeros(3, "f4"), np.zeros((3, 1), "f4")),
        (np.array([1, 2, 300]), np.zeros(3, "u1")),
        (np.array([1, 2, -3]), np.zeros(3, "u8")),
        (np.array([1, 2, 9]), np.zeros(3, ml_dtypes.int4)),
    ],
    ids=str,
)
def test_casts_that_would_lose_more_than_digits(tmp_path: Path, stored: Any, like: Any) -> None:
    ckptz.save_file({"w": stored}, tmp_path / "one")
    with pytest.raises(ckptz.MismatchError, match=r"^w: "):
        ckptz.load_file(tmp_path / "one", like={"w": like}, cast=True)


def test_integers_that_fit(tmp_path: Path) -> None:
    ckptz.save_file({"w": np.array([1, 2, 200])}, tmp_path / "one")
    found = ckptz.load_file(tmp_path / "one", like={"w": np.zeros(3, "u1")}, cast=True)
    assert_same(found["w"], np.array([1, 2, 200], "u1"))


def test_shared_leaves(tmp_path: Path) -> None:
    tied = np.ones(4, "f4")
    ckptz.save_file({"a": tied, "b": tied, "c": tied}, tmp_path / "one")
    like = {"a": np.zeros(4, "f4"), "b": np.zeros(4, "f4"), "c": np.zeros(4, "f8")}
    found = ckptz.load_file(tmp_path / "one", like=like, cast=True)
    assert found["a"] is found["b"]
    assert found["c"].dtype == np.float64


def test_metadata_of_modules(tmp_path: Path) -> None:
    saved = OrderedDict(w=np.ones(2))
    saved._metadata = OrderedDict({"": {"version": 2}})  # type: ignore[attr-defined]
    like = OrderedDict(w=np.zeros(2))
    like._metadata = OrderedDict({"": {"version": 1}, "new": {"version": 5}})  # type: ignore[attr-defined]
    ckptz.save_file(saved, tmp_path / "one")
    found = ckptz.load_file(tmp_path / "one", like=like)
    assert found._metadata == {"": {"version": 2}, "new": {"version": 5}}
    ckptz.save_file(OrderedDict(w=np.ones(2)), tmp_path / "plain")
    assert ckptz.load_file(tmp_path / "plain", like=like)._metadata == like._metadata  # type: ignore[attr-defined]


def test_what_is_no_template(manager: CheckpointManager) -> None:
    class Custom(dict[str, Any]):
        pass

    endless: list[Any] = []
    endless.append(endless)
    for like, text in [
        ({"a": Custom(w=1)}, "a: a template with a container of type .*Custom"),
        ({("a", "b"): 1}, "a template with the key"),
        (endless, "more than 32 containers"),
    ]:
        with pytest.raises(ckptz.UnsupportedTypeError, match=text):
            manager.restore(like=like)
    with pytest.raises(ValueError, match="like and keys do not go together"):
        manager.restore(like={}, keys="*")


def test_only_what_is_asked_for_is_read(manager: CheckpointManager) -> None:
    read: list[int] = []
    manager.restore(0, like={}, progress=read.append)
    assert sum(read) == 0


@stores.examples(60)
@given(tree=trees())
def test_a_state_is_a_template_of_itself(
    tmp_path_factory: pytest.TempPathFactory, tree: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "template.ckptz"
    try:
        ckptz.save_file(tree, path)
    except ValueError:
        assert not evolving.empty_floats_work()
        return
    if tree is not None:
        assert_same(ckptz.load_file(path, like=tree), tree)
