"""The dtypes of .safetensors and torch files, and those that only ml_dtypes has."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..dtypes import ML_SIZES

__all__ = [
    "ML_DTYPES",
    "PACKED_BITS",
    "SAFETENSORS",
    "TORCH_NAMES",
    "TORCH_STORAGES",
    "bits_of",
]

# Those that NumPy's own formats cannot name, by ml_dtypes' name.
ML_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, name)) for name in ML_SIZES if hasattr(ml_dtypes, name)
}

# In the order of the reference's enumeration, by which its writer sorts tensors.
SAFETENSORS: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "F4": ML_DTYPES["float4_e2m1fn"],
    "F6_E2M3": ML_DTYPES["float6_e2m3fn"],
    "F6_E3M2": ML_DTYPES["float6_e3m2fn"],
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "F8_E5M2": ML_DTYPES["float8_e5m2"],
    "F8_E4M3": ML_DTYPES["float8_e4m3fn"],
    "F8_E8M0": ML_DTYPES["float8_e8m0fnu"],
    "F8_E4M3FNUZ": ML_DTYPES["float8_e4m3fnuz"],
    "F8_E5M2FNUZ": ML_DTYPES["float8_e5m2fnuz"],
    "I16": np.dtype("<i2"),
    "U16": np.dtype("<u2"),
    "F16": np.dtype("<f2"),
    "BF16": ML_DTYPES["bfloat16"],
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "F32": np.dtype("<f4"),
    "C64": np.dtype("<c8"),
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
}

# .safetensors packs these more tightly than ml_dtypes, which gives each a byte.
PACKED_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}


def bits_of(code: str) -> int:
    """Bits that an element of a .safetensors dtype takes in the file."""
    return PACKED_BITS.get(code) or 8 * SAFETENSORS[code].itemsize


# Legacy storage classes. The quantized ones are known only so that the message can say so: None.
TORCH_STORAGES: dict[str, np.dtype[Any] | None] = {
    "DoubleStorage": np.dtype("<f8"),
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype(np.bool_),
    "BFloat16Storage": ML_DTYPES["bfloat16"],
    "ComplexDoubleStorage": np.dtype("<c16"),
    "ComplexFloatStorage": np.dtype("<c8"),
    "UntypedStorage": np.dtype("u1"),
    "_UntypedStorage": np.dtype("u1"),
    "QInt8Storage": None,
    "QInt32Storage": None,
    "QUInt8Storage": None,
    "QUInt4x2Storage": None,
    "QUInt2x4Storage": None,
}

# torch's dtypes that NumPy and ml_dtypes have; None: they have none.
TORCH_NAMES: dict[str, np.dtype[Any] | None] = {
    "torch.bool": np.dtype(np.bool_),
    "torch.complex32": ML_DTYPES.get("complex32"),
    "torch.complex64": np.dtype("<c8"),
    "torch.complex128": np.dtype("<c16"),
    "torch.float4_e2m1fn_x2": None,
    **{f"torch.{kind}{bits}": np.dtype(f"<{kind[0]}{bits // 8}")
       for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)
       if (kind, bits) != ("float", 8)},
    **{f"torch.{name}": ML_DTYPES[name] for name in (
        "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
        "float8_e8m0fnu")},
    **{f"torch.{name}": None for name in (
        "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16", "qint8", "qint32", "quint8",
        "quint4x2", "quint2x4")},
}  # fmt: skip
