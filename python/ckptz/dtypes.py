"""Names of dtypes (format.md, sections 1 and 4) and the NumPy dtypes that hold their values."""

from __future__ import annotations

import re
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .errors import FormatError, UnsupportedTypeError

__all__ = [
    "BUILTIN",
    "Layout",
    "dtype_name",
    "layout",
    "numpy_dtype",
    "scalar_bytes",
    "scalar_from_bytes",
    "shape_fits",
]

MAX_DIMENSIONS = 64
MAX_BYTES = 2**48

BUILTIN = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
ML_SIZES = {
    "bfloat16": 2,
    "bcomplex32": 4,
    "complex32": 4,
    "float4_e2m1fn": 1,
    "float6_e2m3fn": 1,
    "float6_e3m2fn": 1,
    "float8_e3m4": 1,
    "float8_e4m3": 1,
    "float8_e4m3b11fnuz": 1,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e5m3fnu": 1,
    "float8_e8m0fnu": 1,
    "int1": 1,
    "int2": 1,
    "int4": 1,
    "uint1": 1,
    "uint2": 1,
    "uint4": 1,
}
# Only torch has these: in NumPy they are unsigned integers of that size.
_RAW = {
    "float4_e2m1fn_x2": 1,
    "int3": 1,
    "int5": 1,
    "int6": 1,
    "int7": 1,
    "uint3": 1,
    "uint5": 1,
    "uint6": 1,
    "uint7": 1,
    "bits8": 1,
    "bits1x8": 1,
    "bits2x4": 1,
    "bits4x2": 1,
    "bits16": 2,
}
_SIZES = BUILTIN | ML_SIZES | _RAW
_FLOATS = {
    "float16": ("f16", 1),
    "bfloat16": ("bf16", 1),
    "float32": ("f32", 1),
    "float64": ("f64", 1),
    "complex32": ("f16", 2),
    "complex64": ("f32", 2),
    "complex128": ("f64", 2),
}
# What remains is named by NumPy's own type strings; group 1 is a size, the last a multiplier.
_TYPE_STRING = re.compile(
    r"<U(?P<U>0|[1-9][0-9]{0,9})|\|S(?P<S>0|[1-9][0-9]{0,9})|<f(?P<f>12|16)|<c(?P<c>24|32)"
    r"|<[Mm]8(?:\[(?P<M>[2-9]|[1-9][0-9]{1,9})?(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)
_LONG_DOUBLES = frozenset({"<f12", "<f16", "<c24", "<c32"})
_MAX_ITEM = 2**31 - 1
_BUILTIN_TYPES = 24  # type numbers from here on belong to other packages


class Layout(NamedTuple):
    """How entries of a dtype are stored."""

    itemsize: int
    """Bytes of one entry."""
    element_type: str
    """`f16`, `bf16`, `f32`, `f64` or `bytes`."""
    per_entry: int
    """Elements that make one entry: 2 for complex numbers of a float element type."""


def layout(name: str) -> Layout | None:
    """Layout of the dtype with this name; None where the format has no such name.

    Needs neither ml_dtypes nor a NumPy that knows the dtype.
    """
    size = _SIZES.get(name)
    if size is not None:
        element_type, per_entry = _FLOATS.get(name, ("bytes", 1))
        return Layout(size, element_type, per_entry)
    match = _TYPE_STRING.fullmatch(name)
    if match is None or int(match["M"] or 0) > _MAX_ITEM:
        return None
    size = 8
    if match["U"]:
        size = 4 * int(match["U"])
    elif match.lastgroup in ("S", "f", "c"):
        size = int(match[match.lastgroup])
    return Layout(size, "bytes", 1) if size <= _MAX_ITEM else None


def shape_fits(shape: tuple[int, ...], itemsize: int) -> bool:
    """Whether a tensor of this shape keeps within the limits (dimensions of 0 count as 1)."""
    if len(shape) > MAX_DIMENSIONS or (shape and not 0 <= min(shape) <= max(shape) <= MAX_BYTES):
        return False
    return max(itemsize, 1) * prod(n or 1 for n in shape) <= MAX_BYTES


def dtype_name(dtype: np.dtype[Any]) -> str | None:
    """Name of a NumPy dtype, whatever its byte order; None for a dtype that is not stored."""
    if dtype.num >= _BUILTIN_TYPES:
        return _extension_name(dtype)
    if dtype.names is not None:
        return "complex32" if dtype == _complex32() else None
    name: str = dtype.name
    if name in BUILTIN:
        return name
    if dtype.kind in "USMmfc":
        name = dtype.newbyteorder("<").str
        return name if layout(name) is not None else None
    return None


def _extension_name(dtype: np.dtype[Any]) -> str | None:
    import ml_dtypes

    name: str = dtype.name
    return name if name in ML_SIZES and getattr(ml_dtypes, name, None) is dtype.type else None


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Find the native NumPy dtype for a name that `layout` knows.

    Raises `UnsupportedTypeError` where the installed NumPy or ml_dtypes lacks it.
    """
    if name in BUILTIN:
        return np.dtype(name)
    if name in _RAW:
        return np.dtype(f"u{_RAW[name]}")
    if name == "complex32":
        return _complex32()
    if name in ML_SIZES:
        import ml_dtypes

        kind = getattr(ml_dtypes, name, None)
        if kind is None:
            raise UnsupportedTypeError(f"dtype {name}: needs a newer ml_dtypes")
        extension: np.dtype[Any] = np.dtype(kind)
        return extension
    try:
        native: np.dtype[Any] = np.dtype(name).newbyteorder("=")
        return native
    except TypeError as error:
        raise UnsupportedTypeError(f"dtype {name}: NumPy has none such on this machine") from error


def _complex32() -> np.dtype[Any]:
    import ml_dtypes

    kind = getattr(ml_dtypes, "complex32", None)  # since 0.6
    return np.dtype([("re", "=f2"), ("im", "=f2")] if kind is None else kind)


def scalar_bytes(scalar: np.generic) -> tuple[str, bytes] | None:
    """Dtype name and little-endian bytes of a NumPy scalar; None for a kind that is not stored."""
    dtype = scalar.dtype
    name = dtype_name(dtype)
    if name is None or type(scalar) is not dtype.type:
        return None
    if isinstance(scalar, np.str_):
        text = str.__str__(scalar)  # NumPy's own would drop zeros at the end
        return name, text.encode("utf-32-le", "surrogatepass")
    if isinstance(scalar, np.bytes_):
        return name, bytes(scalar)
    data = np.asarray(scalar, dtype=dtype.newbyteorder("<")).tobytes()
    return name, _without_padding(data) if name in _LONG_DOUBLES else data


def _without_padding(data: bytes) -> bytes:
    # The 80 bits of a long double come with bytes of no meaning, which differ from time to time.
    if np.finfo(np.longdouble).nmant != 63:
        return data
    numbers = [data] if len(data) in (12, 16) else [data[: len(data) // 2], data[len(data) // 2 :]]
    return b"".join(number[:10].ljust(len(number), b"\0") for number in numbers)


def scalar_from_bytes(name: str, data: bytes) -> np.generic:
    """Inverse of `scalar_bytes`. Raises `FormatError` for bytes that are no such scalar."""
    known = layout(name)
    if known is None or name in _RAW:
        raise FormatError(f"NumPy scalar of unknown dtype {name!r}")
    if len(data) != known.itemsize:
        raise FormatError(f"NumPy scalar of dtype {name} has {len(data)} bytes")
    if name == "bool" and data > b"\x01":
        raise FormatError(f"NumPy scalar of dtype bool has the value {data[0]}")
    if name[:2] in ("|S", "<U"):
        return _text_scalar(name, data)
    try:
        dtype = numpy_dtype(name)
    except UnsupportedTypeError as error:
        raise FormatError(f"NumPy scalar of {error}") from error
    scalar: np.generic = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)[0]
    return scalar


def _text_scalar(name: str, data: bytes) -> np.generic:
    # Made directly: an array's entry would lose the zeros at its end.
    scalar: np.generic
    try:
        scalar = np.bytes_(data)
        if name.startswith("<U"):
            scalar = np.str_(data.decode("utf-32-le", "surrogatepass"))
    except UnicodeDecodeError as error:
        raise FormatError(f"NumPy scalar of dtype {name} is not text") from error
    return scalar
