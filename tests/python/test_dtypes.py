from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ckptz import dtypes, state
from ckptz.errors import FormatError, UnsupportedTypeError
from hypothesis import given
from trees import DTYPES, assert_same_value, scalars


@pytest.mark.parametrize("name", DTYPES)
def test_a_name_and_its_dtype_determine_each_other(name: str) -> None:
    dtype = dtypes.numpy_dtype(name)
    assert dtypes.dtype_name(dtype) == name
    assert dtypes.dtype_name(dtype.newbyteorder(">")) == name
    layout = dtypes.layout(name)
    assert layout is not None
    assert layout.itemsize == dtype.itemsize


def test_every_dtype_of_ml_dtypes_has_a_name() -> None:
    kinds = [getattr(ml_dtypes, name) for name in dir(ml_dtypes)]
    extensions = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, np.generic)]
    assert len(extensions) > 15
    # No name is ever taken away.
    assert len(dtypes.ML_SIZES) >= 21
    new = [kind for kind in extensions if kind.__name__ not in dtypes.ML_SIZES]
    for kind in extensions:
        expected = None if kind in new else kind.__name__
        assert dtypes.dtype_name(np.dtype(kind)) == expected
    for kind in new:  # of a release after ours: refused by name, not guessed at
        with pytest.raises(UnsupportedTypeError, match=kind.__name__):
            state.flatten({"w": np.zeros(3, kind)})
        warnings.warn(f"ml_dtypes has {kind.__name__}: give it a name", stacklevel=1)


def test_a_dtype_that_ml_dtypes_has_and_the_format_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(dtypes.ML_SIZES, "float8_e8m0fnu")
    with pytest.raises(UnsupportedTypeError, match="float8_e8m0fnu"):
        state.flatten({"w": np.zeros(3, ml_dtypes.float8_e8m0fnu)})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("float16", (2, "f16", 1)),
        ("bfloat16", (2, "bf16", 1)),
        ("float32", (4, "f32", 1)),
        ("float64", (8, "f64", 1)),
        ("complex32", (4, "f16", 2)),
        ("complex64", (8, "f32", 2)),
        ("complex128", (16, "f64", 2)),
        ("bool", (1, "bytes", 1)),
        ("float8_e4m3fn", (1, "bytes", 1)),
        ("float4_e2m1fn_x2", (1, "bytes", 1)),
        ("bcomplex32", (4, "bytes", 1)),
        ("<U5", (20, "bytes", 1)),
        ("|S3", (3, "bytes", 1)),
        ("<U0", (0, "bytes", 1)),
        ("<M8[25s]", (8, "bytes", 1)),
        ("<f16", (16, "bytes", 1)),
        ("<c24", (24, "bytes", 1)),
    ],
)
def test_layout(name: str, expected: tuple[int, str, int]) -> None:
    assert dtypes.layout(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        *["", "O", "object", "f4", "<f4", "i4,i4", "(2,)f4", "V3", "|V8", ">U5", "U5", "<U05"],
        *["<U5 ", "<U536870912", "|S2147483648", "<U99999999999999", "<f8", "<c16", "float128"],
        *["<M8[1s]", "<M8[0s]", "<M8[s/10]", "<M8[generic]", "<M8[4294967296s]", "<M9", "finfo"],
    ],
)
def test_names_that_there_are_not(name: str) -> None:
    assert dtypes.layout(name) is None


@pytest.mark.parametrize(
    "dtype",
    [
        object,
        "V8",
        [("a", "f4")],
        [("re", "f2"), ("im", "f4")],
        (np.int32, {"a": (np.int16, 0), "b": (np.int16, 2)}),
    ],
)
def test_dtypes_that_are_not_stored(dtype: Any) -> None:
    assert dtypes.dtype_name(np.dtype(dtype)) is None


def test_string_dtype_is_not_stored() -> None:
    strings = getattr(np, "dtypes", None)
    if not hasattr(strings, "StringDType"):
        pytest.skip("needs NumPy 2: pip install 'numpy>=2'")
    assert dtypes.dtype_name(strings.StringDType()) is None  # type: ignore[union-attr]


def test_a_dtype_with_metadata_is_stored() -> None:
    assert dtypes.dtype_name(np.dtype("f4", metadata={"a": 1})) == "float32"


def test_complex32_without_its_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ml_dtypes, "complex32", raising=False)
    dtype = dtypes.numpy_dtype("complex32")
    assert dtype == np.dtype([("re", "<f2"), ("im", "<f2")])
    assert dtypes.dtype_name(dtype) == "complex32"


def test_a_dtype_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ml_dtypes, "int2")
    with pytest.raises(UnsupportedTypeError, match="int2: needs a newer ml_dtypes"):
        dtypes.numpy_dtype("int2")
    with pytest.raises(FormatError, match="int2: needs a newer ml_dtypes"):
        dtypes.scalar_from_bytes("int2", b"\1")
    with pytest.raises(UnsupportedTypeError, match="<f12"):
        dtypes.numpy_dtype("<f12")


@given(scalars())
def test_scalars_come_back(scalar: Any) -> None:
    parts = dtypes.scalar_bytes(scalar)
    assert parts is not None
    back = dtypes.scalar_from_bytes(*parts)
    assert type(back) is type(scalar)
    assert_same_value(back, scalar)


@pytest.mark.parametrize("name", ["int1", "int2", "int4", "uint1", "uint2", "uint4", "bool"])
def test_small_integers_of_every_value(name: str) -> None:
    if not hasattr(ml_dtypes, name) and name != "bool":
        pytest.skip(f"needs ml_dtypes.{name}: pip install -U ml_dtypes")
    dtype = dtypes.numpy_dtype(name)
    for value in range(-8, 16):
        scalar = np.array([value]).astype(dtype)[0]
        parts = dtypes.scalar_bytes(scalar)
        assert parts is not None
        assert dtypes.scalar_bytes(dtypes.scalar_from_bytes(*parts)) == parts


@pytest.mark.parametrize(
    "scalar",
    [np.str_(""), np.str_("a\0"), np.str_("\ud800x"), np.bytes_(b""), np.bytes_(b"a\0\0")],
)
def test_text_scalars_keep_every_character(scalar: Any) -> None:
    parts = dtypes.scalar_bytes(scalar)
    assert parts is not None
    back = dtypes.scalar_from_bytes(*parts)
    assert type(back) is type(scalar)
    assert back == scalar
    assert len(back) == len(scalar)  # type: ignore[arg-type]


class Subclass(np.float64):
    pass


@pytest.mark.parametrize("scalar", [np.void(b"abc"), Subclass(1.0)])
def test_scalars_that_are_not_stored(scalar: Any) -> None:
    assert dtypes.scalar_bytes(scalar) is None


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("float32", b"123"),
        ("float32", b"12345"),
        ("bool", b"\2"),
        ("O", b"12345678"),
        ("float4_e2m1fn_x2", b"1"),
        ("<U1", b"\xff\xff\xff\xff"),
        ("<U1", b"123"),
        ("<f12", b"123456789012"),
    ],
)
def test_bytes_that_are_no_scalar(name: str, data: bytes) -> None:
    with pytest.raises(FormatError):
        dtypes.scalar_from_bytes(name, data)
