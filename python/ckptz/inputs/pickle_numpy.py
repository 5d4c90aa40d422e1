"""NumPy's arrays, scalars and dtypes as pickles hold them, made from their bytes alone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedTypeError
from .base import as_array
from .dtypes import ML_DTYPES
from .numpy_files import plain_dtype
from .pickle_bytes import DamagedError, RefusedError, is_text, sizes

__all__ = ["Pending", "PendingArray", "PickledDtype", "rebuild_buffer", "rebuild_scalar"]

_UNIT = re.compile(r"generic|Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as")


class Pending:
    """A value that its BUILD opcode completes; `slots`: where the memo holds it until then."""

    def __init__(self) -> None:
        self.slots: list[int] = []

    def complete(self, state: object) -> object:
        """Return the value that takes its place. Raises DamagedError or RefusedError."""
        raise NotImplementedError


class PickledDtype(Pending):
    """A NumPy dtype: its code from REDUCE, byte order and unit from BUILD."""

    name = "numpy.dtype"

    def __init__(self, args: tuple[Any, ...]) -> None:
        super().__init__()
        if not 1 <= len(args) <= 3 or type(args[0]) is not str:
            raise DamagedError("a NumPy dtype is not named by text")
        self._code = args[0]
        self._order = "="

    def complete(self, state: object) -> PickledDtype:
        """Take byte order and unit from what `dtype.__reduce__` gives as its state."""
        if type(state) is not tuple or len(state) not in (8, 9):
            raise DamagedError("the state of a NumPy dtype is not what NumPy writes")
        if not all(field is None for field in state[2:5]):
            raise RefusedError("an array with fields (structured dtype) is not stored")
        if not is_text(state[1], "<", ">", "=", "|"):
            raise DamagedError("a NumPy dtype has no byte order")
        self._order = state[1]
        if self._code in ("M8", "m8"):
            self._code += _unit(state[8] if len(state) == 9 else None)
        return self

    def resolve(self) -> np.dtype[Any]:
        """Make the dtype. Raises DamagedError or RefusedError."""
        try:
            if self._code in ML_DTYPES and self._order != ">":
                return ML_DTYPES[self._code]
            return plain_dtype(self._order + self._code)
        except UnsupportedTypeError as error:
            raise RefusedError(str(error)) from None
        except ValueError as error:
            raise DamagedError(str(error)) from None


def _unit(metadata: object) -> str:
    """Return a datetime's unit, from `(None, (unit, count, divisor, event))`."""
    if type(metadata) is tuple and len(metadata) == 2 and type(metadata[1]) is tuple:
        fields = metadata[1]
        if [type(field) for field in fields] == [bytes, int, int, int] and fields[2:] == (1, 1):
            text = fields[0].decode("latin-1")
            if _UNIT.fullmatch(text) and 0 < fields[1] < 1 << 31:
                return "" if text == "generic" else f"[{fields[1]}{text}]"
    raise DamagedError("a NumPy datetime has no unit")


class PendingArray(Pending):
    """An array whose shape, dtype and bytes its BUILD opcode gives."""

    def __init__(self, spend: Callable[[int], None]) -> None:
        super().__init__()
        self._spend = spend

    def complete(self, state: object) -> npt.NDArray[Any]:
        """Make the array, from `(version, shape, dtype, Fortran order, bytes)`."""
        if type(state) is not tuple or len(state) != 5 or type(state[3]) is not bool:
            raise DamagedError("the state of a NumPy array is not what NumPy writes")
        _, shape, dtype, column_first, data = state
        return _array(dtype, shape, data, "F" if column_first else "C", self._spend)


def rebuild_buffer(args: tuple[Any, ...], spend: Callable[[int], None]) -> npt.NDArray[Any]:
    """Do NumPy's `_frombuffer(bytes, dtype, shape, order)` of protocol 5."""
    if len(args) != 4 or not is_text(args[3], "C", "F"):
        raise DamagedError("an array is not made from bytes, dtype, shape and order")
    return _array(args[1], args[2], args[0], args[3], spend)


def rebuild_scalar(args: tuple[Any, ...], spend: Callable[[int], None]) -> Any:
    """Do NumPy's `scalar(dtype, bytes)`."""
    if len(args) != 2:
        raise DamagedError("a NumPy scalar is not made from a dtype and bytes")
    array = _array(args[0], (), args[1], "C", spend)
    spend(array.nbytes)
    return array[()]


def _array(
    dtype: object, shape: object, data: object, order: str, spend: Callable[[int], None]
) -> npt.NDArray[Any]:
    if not isinstance(dtype, PickledDtype):
        raise DamagedError("a NumPy array has no dtype")
    resolved = dtype.resolve()
    if type(data) is str:  # Python 2's strings of bytes that happened to be UTF-8
        spend(len(data))
        data = data.encode("utf-8", "surrogatepass")
    if type(data) is not bytes:
        raise DamagedError("a NumPy array has no bytes")
    shape = sizes(shape)
    if math.prod(shape) * resolved.itemsize != len(data):
        raise DamagedError(f"a NumPy array of shape {shape} does not have {len(data)} bytes")
    try:
        return as_array(np.frombuffer(data, np.uint8), 0, resolved, shape, order=order)
    except ValueError as error:
        raise DamagedError(f"a NumPy array: {error}") from None
