"""What people ran into, rebuilt: arrays. Each test names the report, as cases.md does."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import ckptz
import evolving
import ml_dtypes
import numpy as np
import pytest
import stores
from cases import lossily, through_everything
from ckptz.dtypes import layout, numpy_dtype
from trees import DTYPES, assert_same

# --- Memory layouts ------------------------------------------------------------------------------


def test_pytorch_40157_size_follows_the_slice(tmp_path: Path) -> None:
    through_everything({"w": np.zeros(1_000_000)[:1000]})
    ckptz.save_file({"w": stores.weights(0, (1_000_000,))[:1000]}, tmp_path / "one")
    assert (tmp_path / "one").stat().st_size < 5000


LAYOUTS: dict[str, Any] = {
    "transposed": lambda a: a.T,
    "fortran": np.asfortranarray,
    "strided": lambda a: a[::2, ::-1],
    "reversed": lambda a: a[::-1],
    "broadcast": lambda a: np.broadcast_to(a[:1], (6, *a.shape[1:])),
    "expanded": lambda a: np.broadcast_to(a[:, :1], a.shape),
    "channels last": lambda a: np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 0, -1)), -1, 0),
    "a column": lambda a: a[:, 2:3],
    "one with an odd stride": lambda a: a.reshape(-1)[::2][:1],
    "unaligned": lambda a: unaligned(a),
    "read-only": lambda a: frozen(a),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "big-endian, strided": lambda a: a.astype(a.dtype.newbyteorder(">"))[::-2, 1::2],
}


def unaligned(array: stores.Array) -> stores.Array:
    memory = np.zeros(array.nbytes + 1, np.uint8)
    made = memory[1:].view(array.dtype).reshape(array.shape)
    made[:] = array
    return made


def frozen(array: stores.Array) -> stores.Array:
    made = array.copy()
    made.flags.writeable = False
    return made


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i8", "u1"])
@pytest.mark.parametrize("layout_name", LAYOUTS)
def test_safetensors_469_825_comfyui_3923_layouts(layout_name: str, dtype: str) -> None:
    change = LAYOUTS[layout_name]
    first = (stores.weights(0, (12, 20)) * 50).astype(dtype)
    second = (first + (stores.weights(1, (12, 20)) * 2).astype(dtype)).astype(dtype)
    through_everything({"w": change(first)})
    # Lossy: the values are those of the plain layout, in every bit.
    found, _ = lossily(change(first), change(second))
    plain, _ = lossily(np.ascontiguousarray(change(first)), np.ascontiguousarray(change(second)))
    assert found.tobytes() == plain.tobytes()
    # And one layout against the other.
    mixed, _ = lossily(np.ascontiguousarray(change(first)), change(second))
    assert mixed.tobytes() == plain.tobytes()


@pytest.mark.parametrize("dtype", [">f4", ">u2", ">i8", ">f8", ">c16", ">U3", ">M8[s]", ">f2"])
def test_safetensors_75_big_endian(tmp_path: Path, dtype: str) -> None:
    plain = np.array([1, 2, 300, 40], dtype.replace(">", "<"))
    through_everything({"w": plain.astype(dtype)})
    found = stored(tmp_path, plain.astype(dtype))
    assert found.dtype == plain.dtype
    assert found.tolist() == plain.tolist()


def stored(path: Path, array: Any) -> Any:
    ckptz.save_file({"w": array}, path / "f.ckptz")
    return ckptz.load_file(path / "f.ckptz")["w"]


def test_safetensors_304_tied_and_overlapping(tmp_path: Path) -> None:
    memory = stores.weights(0, (40,))
    tied = memory[:30]
    tree = {"a": tied, "b": tied, "c": memory[:30], "part": memory[10:], "n": [tied]}
    through_everything(tree)
    with ckptz.CheckpointManager(tmp_path) as manager:
        for step in range(3):
            memory += np.float32(0.1)
            manager.save(step, tree)
            found = manager.restore()
            assert found["a"] is found["b"] is found["c"] is found["n"][0]
            assert not np.shares_memory(found["a"], found["part"])
            assert found["part"].tobytes() == memory[10:].tobytes()
            found["a"][:] = 0
            assert not found["b"].any()
        # Untied between saves, and tied again.
        for other in (tied.copy(), tied):
            step += 1
            manager.save(step, tree | {"b": other})
            found = manager.restore()
            assert (found["a"] is found["b"]) == (other is tied)


# --- Shapes, dtypes, numbers ---------------------------------------------------------------------


@pytest.mark.xfail(
    not evolving.empty_floats_work(),
    strict=True,
    reason="core: elements() refuses an empty slice, whose pointer is not aligned (view.rs)",
)
@pytest.mark.parametrize("dtype", ["f2", "bfloat16", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(0, 5), (0,), (3, 0, 2)])
def test_orbax_1309_2587_empty_floats(shape: tuple[int, ...], dtype: str) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    through_everything({"w": np.zeros(shape, kind)})
    through_everything(np.zeros(shape, kind))


@pytest.mark.parametrize("dtype", ["i8", "bool", "u1", "<U2", "<U0", "|S0", "|S3", "M8[s]", "f1"])
@pytest.mark.parametrize("shape", [(0, 5), (0,), (3, 0, 2), (), (1,), (1, 1, 1)])
def test_orbax_1309_2587_shapes(shape: tuple[int, ...], dtype: str) -> None:
    kind = ml_dtypes.float8_e4m3fn if dtype == "f1" else dtype
    through_everything({"w": np.zeros(shape, kind), "v": np.ones(shape, kind)})
    through_everything(np.zeros(shape, kind))


@pytest.mark.parametrize("name", sorted(set(DTYPES)))
def test_safetensors_489_598_every_dtype_of_numpy_and_ml_dtypes(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for shape in ((), (7,), (30, 4)):
        if name in ("<U0", "|S0"):
            through_everything({"w": np.ndarray(shape, name)})
            continue
        array = evolving.random_bits(rng, name, shape)
        if name == "<U5":
            array = np.full(shape, "añ𝄞", "<U5")
        through_everything({"w": array})
        if layout(name) is not None and array.size:
            other = evolving.random_bits(rng, name, shape) if name != "<U5" else array.copy()
            lossily(array, other)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_ultralytics_24731_bits_of_odd_numbers(name: str) -> None:
    dtype = numpy_dtype(name)
    limits: Any = getattr(ml_dtypes, "finfo")(dtype)  # noqa: B009 - it has no types
    top, tiny = float(limits.max), float(limits.smallest_subnormal)
    odd = [65505, 3e38, math.nan, -math.nan, -0.0, 0.0, tiny, -tiny, math.inf, -math.inf, top, -top]
    with np.errstate(all="ignore"):
        array = np.array(odd * 4, np.float64).astype(dtype)
    bits = array.view(f"u{array.itemsize}")
    bits[3] = {2: 0x7F81 if name == "bfloat16" else 0x7C01, 4: 0x7F80_0001, 8: (0x7FF << 52) + 1}[
        array.itemsize
    ]
    through_everything({"w": array})
    rng = np.random.default_rng(0)
    for policy in ("lossy", "lossy:7", "paper:2"):
        near = rng.normal(size=array.size).astype(dtype)
        found, _ = lossily(near, array, policy)
        # Whatever is not finite is kept in every bit, and nothing else becomes so.
        with np.errstate(all="ignore"):
            kept = ~np.isfinite(array.astype("f8"))
        assert found[kept].tobytes() == array[kept].tobytes()
        assert np.isfinite(found[~kept].astype("f8")).all()


def test_zero_keeps_its_sign_where_nothing_changes() -> None:
    base = np.array([-0.0, 0.0] * 20, "f4")
    target = base.copy()
    target[::7] += np.float32(1)
    found, _ = lossily(base, target, "paper:1")
    same = target == base
    assert found[same].tobytes() == base[same].tobytes()


def test_speculators_899_a_float_step_stays_exact(tmp_path: Path) -> None:
    with ckptz.CheckpointManager(tmp_path, exact="none") as manager:
        for step in range(10_000, 10_004):
            tree = {
                "step": np.array(float(step), "f4"),
                "n": float(step),
                "w": stores.weights(step),
            }
            manager.save(step, tree)
            found = manager.restore(step)
            assert found["step"] == step
            assert found["n"] == step
            assert found["step"].shape == ()


def test_pytorch_8430_batch_statistics_stay_exact(tmp_path: Path) -> None:
    with ckptz.CheckpointManager(tmp_path, exact="none") as manager:
        for step in range(3):
            state = OrderedDict(
                {
                    "bn.running_mean": stores.weights(step, (64,)),
                    "bn.running_var": stores.weights(step, (64,)) ** 2,
                    "bn.num_batches_tracked": np.array(step * 1000 + 7),
                    "bn.weight": stores.weights(step, (64, 40)),
                }
            )
            state._metadata = OrderedDict({"": {"version": 1}, "bn": {"version": 2}})  # type: ignore[attr-defined]
            manager.save(step, {"model": state})
            found = manager.restore(step)["model"]
            for name in list(state)[:3]:
                assert_same(found[name], state[name])
            assert_same(found._metadata, state._metadata)  # type: ignore[attr-defined]
        assert stores.representatives(manager, 2)["model/bn.weight"]["lossy"]


def test_empty_tensors_are_linked_to_nothing(tmp_path: Path) -> None:
    tree = {name: np.zeros((0, 3), name) for name in ("float16", "float32", "float64")}
    with ckptz.CheckpointManager(tmp_path) as manager:
        for step in range(2):
            manager.save(step, tree)
            assert_same(manager.restore(), tree)
