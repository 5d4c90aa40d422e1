"""What people ran into, rebuilt: states. Each test names the report, as cases.md does."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections import namedtuple
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from cases import through_everything
from trees import Point, assert_same

ROUND = namedtuple("ROUND", ["x", "y"])


# --- Trees ---------------------------------------------------------------------------------------


def test_orbax_2561_720_structures() -> None:
    through_everything({0: stores.weights(0), "0": stores.weights(1), "-1": 1, -1: 2})
    through_everything({"a": 0, "b": {}, "c": (), "d": None, "e": [], "f": [[], {}], "g": ((),)})
    through_everything(
        {"n": Point(1, stores.weights(0)), "m": ROUND(x=2, y=())}, types=[Point, ROUND]
    )
    through_everything(None)
    through_everything(3)
    through_everything({})
    through_everything([])
    through_everything(stores.weights(0))


def test_orbax_720_a_named_tuple_without_its_class(tmp_path: Path) -> None:
    ckptz.save_file(ROUND(1, 2), tmp_path / "one")
    found = ckptz.load_file(tmp_path / "one")
    assert type(found).__name__ == "ROUND"
    assert found._fields == ("x", "y")
    assert found == (1, 2)


def test_keys_are_data_and_never_paths(tmp_path: Path) -> None:
    names = [
        "",
        "/",
        "..",
        "../x",
        "/etc/passwd",
        "a.b",
        "new\nline",
        "\0",
        "größe",
        "模型",
        "~",
        "~0",
    ]
    names += ["__metadata__", "-0", "00", "+1", "x" * 3000, "\ud800", "*", "[a]", "a/b"]
    tree: dict[Any, Any] = {name: stores.weights(n, (3,)) for n, name in enumerate(names)}
    tree["a"] = {"b": stores.weights(50, (3,))}
    through_everything(tree)
    with ckptz.CheckpointManager(tmp_path / "run") as manager:
        manager.save(0, tree)
        assert {path.name for path in tmp_path.iterdir()} == {"run"}
        assert len(list((tmp_path / "run").iterdir())) == 2
        snapshot = manager.open()
        assert len(snapshot) == len(names) + 1
        assert snapshot["a/b"].numpy().tobytes() == tree["a"]["b"].tobytes()
        assert snapshot["a~1b"].numpy().tobytes() == tree["a/b"].tobytes()


def test_orbax_1071_transformers_34631_random_number_generators() -> None:
    pcg = np.random.default_rng(5).bit_generator.state
    assert pcg["state"]["state"] > 2**64
    twister = np.random.RandomState(3)
    twister.normal()
    import random

    tree = {
        "pcg": pcg,
        "twister": twister.get_state(),
        "python": random.Random(3).getstate(),
        "scalars": [np.float32(1.5), np.int64(-3), np.bool_(True), np.float64("nan"), np.str_("x")],
        "philox": {k: v for k, v in np.random.Philox(1).state.items() if k != "unknown"},
    }
    through_everything(tree)
    again = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        ckptz.save_file(tree, f"{folder}/one")
        again.bit_generator.state = ckptz.load_file(f"{folder}/one")["pcg"]
    expected = np.random.default_rng(5)
    assert again.bytes(100) == expected.bytes(100)


# --- Between snapshots ---------------------------------------------------------------------------


def test_dreamzero_90_tensors_that_do_not_change_cost_about_nothing(tmp_path: Path) -> None:
    tree = {f"t{n}": stores.weights(n, (100,)) for n in range(400)}
    with ckptz.CheckpointManager(tmp_path) as manager:
        manager.save(0, tree)
        tree |= {f"t{n}": tree[f"t{n}"] + np.float32(0.5) for n in range(4)}
        manager.save(1, tree)
        assert manager.stats(1).bytes < 700


def test_moonclip_tensors_come_go_and_change_their_size(tmp_path: Path) -> None:
    first = {"stay": stores.weights(0), "go": stores.weights(1), "grow": stores.weights(2, (40,))}
    second = {
        "stay": stores.weights(3),
        "come": stores.weights(4),
        "grow": stores.weights(5, (60,)),
    }
    third = {"stay": stores.weights(6), "go": stores.weights(7), "grow": stores.weights(8, (40,))}
    with ckptz.CheckpointManager(tmp_path, full_every=0) as manager:
        for step, tree in enumerate((first, second, third)):
            manager.save(step, tree)
            assert_same(manager.restore(), tree)
            assert list(manager.restore(residual=False)) == list(tree)
            assert stores.arrays_of(stores.fresh(tmp_path, residual=False)) == stores.base_of(
                manager
            )
        found = stores.representatives(manager, 2)
        # What was gone for a snapshot has no base there, and nothing is taken from further back.
        assert found["go"]["kind"] == "classes"
        assert found["go"]["base"] == "zero"


def test_nanogpt_prefixes_that_appear(tmp_path: Path) -> None:
    plain = {f"layer{n}.weight": stores.weights(n) for n in range(5)}
    with ckptz.CheckpointManager(tmp_path) as manager:
        for step, prefix in enumerate(["", "_orig_mod.", "module.", ""]):
            tree = {prefix + name: array + np.float32(step) for name, array in plain.items()}
            manager.save(step, tree)
            assert_same(manager.restore(), tree)
            assert stores.arrays_of(stores.fresh(tmp_path, residual=False)) == stores.base_of(
                manager
            )


def test_accelerate_1163_steps_in_numeric_order(tmp_path: Path) -> None:
    with ckptz.CheckpointManager(tmp_path) as manager:
        for step in (9, 10, 99, 100, 9_999_999_999, 10_000_000_000):
            manager.save(step, {"n": step})
        assert manager.latest_step() == 10_000_000_000
        assert manager.restore()["n"] == 10_000_000_000


# --- Large tensors: hours of nothing but zeros ----------------------------------------------------


@pytest.mark.skipif(not stores.SLOW, reason="takes minutes: CKPTZ_SLOW=1 runs it")
@pytest.mark.parametrize(
    ("count", "dtype"),
    [
        (2**31 + 1, "u1"),
        (2**31 + 1, "bool"),
        (2**32 + 3, "u1"),
        (2**29 + 3, "f8"),
        (2**31 + 1, "f2"),
    ],
)
def test_pytorch_47201_ray_12650_large_tensors(tmp_path: Path, count: int, dtype: str) -> None:
    array = np.zeros(count, dtype)
    places = [0, 1, 2**16, 2**28, 2**29 - 1, count - 2, count - 1]
    places += [at for at in (2**31 - 1, 2**31) if at < count]
    array[places] = 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if memory < 3 * array.nbytes:
        pytest.skip("too little memory")
    ckptz.save_file({"w": array}, tmp_path / "one.ckptz")
    with ckptz.safe_open(tmp_path / "one.ckptz") as snapshot:
        assert snapshot["w"].shape == (count,)
        for at in places:
            assert snapshot["w"][at] == 1
        assert not snapshot["w"][2**28 + 1 : 2**28 + 100].any()
    found = ckptz.load_file(tmp_path / "one.ckptz")["w"]
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)
    del found
    with ckptz.CheckpointManager(tmp_path / "run") as manager:
        manager.save(0, {"w": array})
        array[count - 5] = 1
        manager.save(1, {"w": array})
        assert manager.stats(1).kind == "delta"
        assert manager.restore(1, residual=False)["w"][count - 5] == 1
        assert stores.base_of(manager)[0] == array.tobytes() if array.nbytes < 2**31 else True
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.array_equal(manager.restore()["w"], array)
