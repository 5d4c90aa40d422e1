"""Reading .safetensors: every dtype, zero copies, and each rule of its header."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ckptz.errors import FormatError, UnsupportedTypeError
from ckptz.inputs import open_input
from inputs_files import safetensors, state_of, survives

DTYPES = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16,
    "U32": np.uint32, "I32": np.int32, "U64": np.uint64, "I64": np.int64, "F16": np.float16,
    "F32": np.float32, "F64": np.float64, "C64": np.complex64, "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu, "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip


def entry(dtype: Any = "U8", shape: Any = (2,), offsets: Any = (0, 2)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize("code", DTYPES)
def test_each_dtype_is_a_view_of_the_same_bits(tmp_path: Path, code: str) -> None:
    dtype = np.dtype(DTYPES[code])
    data = bytes(i % 2 for i in range(6 * dtype.itemsize))
    state = state_of(tmp_path / "a", safetensors({"x": entry(code, [2, 3], [0, len(data)])}, data))
    assert state["x"].dtype == dtype
    assert state["x"].shape == (2, 3)
    assert state["x"].tobytes() == data
    assert not state["x"].flags.owndata
    assert not state["x"].flags.writeable


def test_f4_is_unpacked_low_half_first(tmp_path: Path) -> None:
    data = safetensors({"x": entry("F4", [2, 2], [0, 2])}, b"\x21\x9f")
    array = state_of(tmp_path / "a", data)["x"]
    assert array.dtype == ml_dtypes.float4_e2m1fn
    assert array.astype(float).tolist() == [[0.5, 1.0], [-6.0, -0.5]]


def test_f6_is_refused_with_the_tensors_name(tmp_path: Path) -> None:
    data = safetensors({"x": entry("F6_E2M3", [4], [0, 3])}, b"abc")
    with pytest.raises(UnsupportedTypeError, match="tensor 'x' is F6_E2M3"):
        state_of(tmp_path / "a", data)


def test_metadata_stands_beside_the_state(tmp_path: Path) -> None:
    data = safetensors({"__metadata__": {"format": "pt"}, "x": entry()}, b"ab")
    (tmp_path / "a").write_bytes(data)
    with open_input(tmp_path / "a") as file:
        assert file.metadata == {"format": "pt"}
        assert list(file.state()) == ["x"]  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="closed"):
        file.state()


def test_arrays_outlive_the_file(tmp_path: Path) -> None:
    state = state_of(tmp_path / "a", safetensors({"x": entry()}, b"ab"))
    (tmp_path / "a").unlink()
    assert state["x"].tobytes() == b"ab"


def test_shapes_of_any_kind(tmp_path: Path) -> None:
    header = {
        "scalar": entry(shape=[], offsets=[0, 1]),
        "empty": entry(shape=[0, 5], offsets=[1, 1]),
        "": entry(shape=[1], offsets=[1, 2]),
        "a/../b\n\0": entry(shape=[1, 1], offsets=[2, 3]),
    }
    state = state_of(tmp_path / "a", safetensors(header, b"abc"))
    assert {key: array.shape for key, array in state.items()} == {
        "scalar": (), "empty": (0, 5), "": (1,), "a/../b\n\0": (1, 1),
    }  # fmt: skip


BAD_HEADERS = {
    "not JSON": b"{'x': 1}",
    "not UTF-8": b'{"\xff": 1}',
    "cut short": b'{"x": ',
    "a duplicate key": b'{"x": {"dtype":"U8","shape":[2],"data_offsets":[0,2],"shape":[2]}}',
    "deep nesting": b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a long number": b'{"x": {"dtype":"U8","shape":['
    + b"9" * 100_000
    + b'],"data_offsets":[0,2]}}',
    "half a surrogate pair": b'{"\\ud800": {"dtype":"U8","shape":[2],"data_offsets":[0,2]}}',
    "a list": b"[]",
    "many dimensions": json.dumps({"x": entry(shape=[10**14] * 200_000)}).encode(),
    "huge": json.dumps({"x": entry(shape=[2**40, 2**40])}).encode(),
    "a fraction": json.dumps({"x": entry(shape=[2.0])}).encode(),
    "a negative": json.dumps({"x": entry(shape=[-1])}).encode(),
    "a boolean": json.dumps({"x": entry(shape=[True, 2])}).encode(),
    "another dtype": json.dumps({"x": entry(dtype="Q4")}).encode(),
    "no text dtype": json.dumps({"x": entry(dtype=["U8"])}).encode(),
    "no entry": json.dumps({"x": 3}).encode(),
    "one more field": json.dumps({"x": {**entry(), "more": 1}}).encode(),
    "a wrong size": json.dumps({"x": entry(shape=[3])}).encode(),
    "half a byte": json.dumps({"x": entry("F4", [3], [0, 2])}).encode(),
    "offsets that fall": json.dumps({"x": entry(offsets=[2, 0])}).encode(),
    "a hole at the start": json.dumps({"x": entry(shape=[1], offsets=[1, 2])}).encode(),
    "a hole at the end": json.dumps({"x": entry(shape=[1], offsets=[0, 1])}).encode(),
    "an overlap": json.dumps({"x": entry(), "y": entry(shape=[1], offsets=[1, 2])}).encode(),
    "past the end": json.dumps({"x": entry(shape=[9], offsets=[0, 9])}).encode(),
    "metadata that is no text": json.dumps({"__metadata__": {"a": 1}, "x": entry()}).encode(),
    "metadata that is no map": json.dumps({"__metadata__": [], "x": entry()}).encode(),
}


@pytest.mark.parametrize("name", BAD_HEADERS)
def test_each_bad_header_is_refused(tmp_path: Path, name: str) -> None:
    error = survives(tmp_path / "a.safetensors", safetensors(BAD_HEADERS[name], b"ab"))
    assert isinstance(error, FormatError), name
    assert "offset" in str(error)


def test_header_lengths(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    for data, what in [
        (b"", "empty"),
        (b"abc", "too short"),
        (struct.pack("<Q", 2**63) + b"{}", "over the limit"),
        (struct.pack("<Q", 9) + b"{}", "ends inside its header"),
    ]:
        error = survives(path, data)
        assert isinstance(error, FormatError)
        assert what in str(error)


def test_same_as_the_reference(tmp_path: Path) -> None:
    reference = pytest.importorskip("safetensors.numpy", reason="needs safetensors: pip install")
    arrays = {f"a{i}": np.arange(i, dtype=np.float32) for i in range(5)}
    reference.save_file(arrays, tmp_path / "a", {"k": "v"})
    with open_input(tmp_path / "a") as file:
        state: Any = file.state()
        assert file.metadata == {"k": "v"}
    assert state.keys() == arrays.keys()
    assert all(np.array_equal(state[key], arrays[key]) for key in arrays)
