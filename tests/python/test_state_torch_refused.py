from __future__ import annotations

import importlib
from typing import Any

import pytest
from ckptz.errors import UnsupportedTypeError
from ckptz.state import flatten

torch: Any = pytest.importorskip("torch", reason="needs torch: pip install torch")


class Wrapper(torch.Tensor):  # type: ignore[misc]
    pass


def refused() -> list[tuple[Any, str]]:
    ones = torch.ones(2, 2)
    quantized = torch.quantize_per_tensor(ones, 0.1, 0, torch.qint8)
    with torch.device("meta"):
        meta = torch.ones(2)
    return [
        (meta, "on the device meta: it has no values"),
        (ones.to_sparse(), "of layout torch.sparse_coo; use `.to_dense()` first"),
        (ones.to_sparse_csr(), "of layout torch.sparse_csr; use `.to_dense()` first"),
        (quantized, "a quantized torch tensor"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "a nested torch tensor"),
        (ones.as_subclass(Wrapper), "Wrapper; convert it to a plain tensor"),
        (torch.nn.UninitializedParameter(), "UninitializedParameter; convert it to a plain tensor"),
        (torch.float32, "type torch.dtype; convert it"),
        (torch.device("cpu"), "type torch.device; convert it"),
        (torch.max(ones, 0), "type torch.return_types.max; convert it to a plain tuple"),
        (torch.Generator(), "Generator; store what its `get_state()` returns"),
        (torch.nn.Linear(2, 2), "Linear; store what its `state_dict()` returns"),
    ]


@pytest.mark.filterwarnings("ignore")
def test_leaves_that_are_not_stored() -> None:
    for value, message in refused():
        with pytest.raises(UnsupportedTypeError) as caught:
            flatten({"model": {"w": value}})
        assert str(caught.value).startswith("model/w: cannot store ")
        assert message in str(caught.value)


def test_fake_and_transformed_tensors_are_not_stored() -> None:
    fakes: Any = importlib.import_module("torch._subclasses.fake_tensor")
    with fakes.FakeTensorMode():
        fake = torch.ones(2)
    with pytest.raises(UnsupportedTypeError, match="FakeTensor"):
        flatten([fake])

    def inside(x: Any) -> Any:
        with pytest.raises(UnsupportedTypeError, match="without memory of its own"):
            flatten([x])
        return x

    torch.func.vmap(inside)(torch.ones(2, 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: run where torch sees one")
def test_tensors_on_a_gpu_are_not_stored() -> None:
    with pytest.raises(
        UnsupportedTypeError, match=r"w: .* the device cuda:0; use `\.cpu\(\)` first"
    ):
        flatten({"w": torch.ones(2, device="cuda")})
