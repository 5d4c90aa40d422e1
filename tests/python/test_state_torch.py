from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ckptz import torch as torch_leaves
from ckptz.dtypes import layout, numpy_dtype
from ckptz.errors import FormatError
from ckptz.schema import Schema
from ckptz.state import contiguous, flatten, unflatten
from trees import assert_same, round_trip

torch: Any = pytest.importorskip("torch", reason="needs torch: pip install torch")

NAMES = sorted(
    {str(kind)[6:] for kind in vars(torch).values() if isinstance(kind, torch.dtype)}
    - {"quint8", "qint8", "qint32", "quint4x2", "quint2x4"}
)


def bits(tensor: Any) -> bytes:
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def assert_same_tensor(left: Any, right: Any) -> None:
    assert type(left) is type(right) is torch.Tensor
    assert left.dtype == right.dtype
    assert left.shape == right.shape
    assert bits(left) == bits(right)


def anything(name: str, shape: tuple[int, ...]) -> Any:
    """Make a tensor of any dtype with random bits."""
    dtype = getattr(torch, name)
    size = int(np.prod(shape)) * dtype.itemsize
    data = np.random.default_rng(1).integers(0, 2 if name == "bool" else 256, size, "u1")
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(data).view(dtype).reshape(shape)


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_has_a_name_in_the_format(name: str) -> None:
    found = layout(name)
    assert found is not None
    assert found.itemsize == getattr(torch, name).itemsize


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (0,), (0, 5), (4,), (2, 3)])
def test_every_dtype_and_shape(name: str, shape: tuple[int, ...]) -> None:
    tensor = anything(name, shape)
    back = round_trip({"w": tensor})["w"]
    assert_same_tensor(back, tensor)
    array = round_trip({"w": tensor}, as_numpy=True)["w"]
    assert array.dtype == numpy_dtype(name)
    assert array.shape == shape
    assert array.tobytes() == bits(tensor)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float16", "int64", "complex64"])
def test_layouts(name: str) -> None:
    base = anything(name, (2, 3, 4, 5))
    tensors = [
        base.permute(3, 0, 2, 1),
        base[:, ::2, 1:3],
        base[:1, :1].expand(3, 2, 4, 5),
        base.contiguous(memory_format=torch.channels_last),
        base[0, 0].t(),
        base[1, 2, 3, 4],
    ]
    for back, tensor in zip(round_trip(tensors), tensors, strict=True):
        assert_same_tensor(back, tensor)


def test_bits_are_kept() -> None:
    words = np.array([0x7F800001, 0xFFC12345, 0x80000000, 1, 0x7F800000, 0xFF800000], "u4")
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2):
        tensor = torch.from_numpy(words.view("i4")).view(dtype)
        assert_same_tensor(round_trip(tensor), tensor)


def test_flatten_copies_nothing_and_changes_nothing() -> None:
    half = torch.zeros(4, dtype=torch.bfloat16)
    weight = torch.nn.Parameter(torch.ones(3))
    flat = flatten([half, weight])
    assert [array.dtype for array in flat.arrays] == [ml_dtypes.bfloat16, np.float32]
    flat.arrays[0][0] = 1
    assert half[0] == 1
    assert flat.arrays[1].__array_interface__["data"][0] == weight.data_ptr()
    assert weight.requires_grad
    assert type(weight) is torch.nn.Parameter


def test_restored_tensors_share_the_arrays_given() -> None:
    flat = flatten(torch.zeros(4, dtype=torch.bfloat16))
    array = np.zeros(4, ml_dtypes.bfloat16)
    tensor: Any = unflatten(Schema.parse(flat.schema), [array], [])
    assert tensor.data_ptr() == array.__array_interface__["data"][0]
    array.flags.writeable = False
    tensor = unflatten(Schema.parse(flat.schema), [array], [])
    tensor[0] = 1
    assert array[0] == 0


def test_tensors_that_need_gradients() -> None:
    leaf = torch.randn(3, requires_grad=True)
    tree = {"leaf": leaf, "result": leaf * 2, "weight": torch.nn.Parameter(torch.ones(2))}
    back = round_trip(tree)
    for key in tree:
        assert_same_tensor(back[key], tree[key].detach())
        assert not back[key].requires_grad
    assert leaf.grad is None
    assert tree["result"].grad_fn is not None


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_lazy_conjugates_and_negatives() -> None:
    z = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    h = z.to(torch.complex32)
    lazy = [z, z.conj(), z.conj().imag, z.conj().resolve_conj(), h, h.conj(), h.conj().imag]
    back = round_trip(lazy)
    for one, other in zip(back, lazy, strict=True):
        assert_same_tensor(one, other.resolve_conj().resolve_neg())
    assert lazy[1].is_conj()
    assert lazy[2].is_neg()


# Sharing


def test_tied_weights() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    state = model.state_dict()
    assert len(flatten(state).arrays) == 3
    back = round_trip(state)
    assert type(back) is OrderedDict
    assert back["0.weight"] is back["1.weight"]
    assert_same(vars(back)["_metadata"], state._metadata)
    torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)).load_state_dict(back)


def test_partial_overlap_and_other_views_are_stored_apart() -> None:
    base = torch.arange(6.0)
    views = [base, base[:5], base.view(2, 3), base.view(torch.int32), base.view(2, 3).t()]
    views += [base.view(2, 3), base.detach(), base[:0], base[:0]]
    flat = flatten(views)
    assert len(flat.arrays) == 7
    back = round_trip(views)
    assert back[2] is back[5]
    assert back[0] is back[6]
    for one, other in zip(back, views, strict=True):
        assert_same_tensor(one, other)


def test_raw_types_of_the_same_memory() -> None:
    base = torch.arange(4, dtype=torch.uint8)
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("needs torch.float4_e2m1fn_x2: pip install 'torch>=2.8'")
    packed = base.view(torch.float4_e2m1fn_x2)
    back = round_trip([base, packed, base.view(torch.uint8)])
    assert back[0] is back[2]
    assert back[1].dtype == torch.float4_e2m1fn_x2


def test_an_array_and_a_tensor_of_the_same_memory() -> None:
    array = np.arange(4.0)
    tensor = torch.from_numpy(array)
    for tree in ([array, tensor, tensor.numpy()], [tensor, array, tensor[:], array[:]]):
        kinds = list(map(type, tree))
        back = round_trip(tree)
        assert list(map(type, back)) == kinds
    assert back[0] is back[2]
    assert back[1] is back[3]


# Whole training states


def test_models_and_optimizers() -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "size": torch.Size([2, 3]),
        "step": 2,
    }
    back = round_trip(state)
    model.load_state_dict(back["model"])
    optimizer.load_state_dict(back["optimizer"])
    torch.set_rng_state(back["rng"])
    assert back["model"]["1.num_batches_tracked"].dtype == torch.int64
    assert back["model"]["1.num_batches_tracked"].shape == ()
    assert type(back["size"]) is torch.Size
    assert back["size"] == (2, 3)
    numpy = round_trip(state, as_numpy=True)
    assert_same(numpy["size"], (2, 3))
    assert type(numpy["model"]["0.weight"]) is np.ndarray


def test_torch_size_of_odd_values() -> None:
    schema = Schema.parse(Schema.encode([(None, 7, 1), (None, 16)]))
    assert unflatten(schema, [], [5]) == torch.Size([5])
    for value in (2**63, True, "a"):
        with pytest.raises(FormatError, match=r"torch\.Size"):
            unflatten(schema, [], [value])


# Without torch


def test_without_torch_there_are_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {"a": torch.ones(2, dtype=torch.bfloat16), "s": torch.Size([1])}
    flat = flatten(tree)
    arrays = [contiguous(array) for array in flat.arrays]
    monkeypatch.setattr(torch_leaves, "installed", lambda: None)
    back: Any = unflatten(Schema.parse(flat.schema), arrays, flat.values)
    assert_same(back, {"a": np.ones(2, ml_dtypes.bfloat16), "s": (1,)})


def test_a_torch_that_lacks_the_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "uint16")
    array = np.arange(3, dtype="u2")
    assert torch_leaves.from_array(torch, array, "uint16") is array


def test_torch_is_imported_only_when_a_restore_asks_for_it() -> None:
    code = """
import sys, numpy as np
from ckptz.schema import Schema
from ckptz.state import flatten, unflatten
flat = flatten({"a": np.ones(3)})
assert "torch" not in sys.modules
schema = Schema.parse(Schema.encode([(None, 17, "float32", (1,), 1)]))
unflatten(schema, [np.ones(1, "f4")], [], as_numpy=True)
assert "torch" not in sys.modules
print(type(unflatten(schema, [np.ones(1, "f4")], [])).__name__)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "Tensor\n"
