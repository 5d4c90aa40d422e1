"""Reading what the torch that is installed saves, in every protocol; skipped without torch."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ckptz.errors import UnsupportedTypeError
from ckptz.inputs import open_input


def live_state(torch: Any) -> Any:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.tag = "attribute"
    return {
        "dtypes": {
            str(dtype): torch.ones(3).to(dtype)
            for dtype in (
                torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64,
                torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32,
                torch.uint64, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn,
                torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
            )
        },
        "parameter": parameter,
        "rng": torch.get_rng_state(),
        "slice": torch.arange(1000.0)[:10],
        "channels": torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "numpy": [np.arange(3), np.zeros((2, 0)), np.str_("a"), np.datetime64(5, "ns")],
        "nested": ({"a": [()]}, OrderedDict(b=None), b""),
    }  # fmt: skip


def assert_same(found: Any, wanted: Any) -> None:
    if hasattr(wanted, "untyped_storage"):
        wanted = wanted.detach()
        assert found.shape == tuple(wanted.shape)
        assert found.strides == tuple(wanted.element_size() * step for step in wanted.stride())
        raw = wanted.contiguous().untyped_storage()
        size = wanted.numel() * wanted.element_size()
        assert np.ascontiguousarray(found).tobytes() == bytes(raw)[:size]
    elif isinstance(wanted, dict):
        assert type(found) is type(wanted)
        assert list(found) == list(wanted)
        for key in wanted:
            assert_same(found[key], wanted[key])
    elif isinstance(wanted, (list, tuple)):
        assert type(found) is type(wanted)
        assert len(found) == len(wanted)
        for item, other in zip(found, wanted, strict=True):
            assert_same(item, other)
    else:
        assert type(found) is type(wanted)
        assert np.array_equal(found, wanted)
        assert getattr(found, "dtype", None) == getattr(wanted, "dtype", None)


@pytest.mark.parametrize("zip_format", [True, False])
@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_live(tmp_path: Path, protocol: int, zip_format: bool) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install torch")
    state = live_state(torch)
    path = tmp_path / "a.pt"
    torch.save(state, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zip_format)
    with open_input(path) as file:
        assert_same(file.state(), state)


def test_live_kinds_that_are_not_stored(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install torch")
    refused = {
        "sparse": torch.eye(2).to_sparse(),
        "meta": torch.zeros(2, device="meta"),
        "conj": torch.zeros(2, dtype=torch.complex64).conj(),
        "set": {1, 2},
        "path": tmp_path,
        "module": torch.nn.ReLU(),
        "optimizer": torch.optim.SGD([torch.zeros(1)], lr=1),
        "tuple key": {(1, 2): 3},
        "class": OrderedDict,
        "storage": torch.zeros(2).untyped_storage(),
    }
    for name, value in refused.items():
        torch.save({"x": value}, tmp_path / "a.pt")
        with open_input(tmp_path / "a.pt") as file, pytest.raises(UnsupportedTypeError) as caught:
            file.state()
        assert "a.pt: " in str(caught.value), name


def test_live_without_crcs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install torch")
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"x": torch.ones(5)}, tmp_path / "a.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    with open_input(tmp_path / "a.pt") as file:
        assert_same(file.state(), {"x": torch.ones(5)})
