"""torch's storages and tensors as views of mapped bytes, and the globals that make them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .base import Bytes, as_array
from .dtypes import ML_DTYPES, TORCH_NAMES, TORCH_STORAGES
from .pickle_bytes import DamagedError, RefusedError, is_text, sizes
from .pickle_globals import PLAIN_GLOBALS, Global, Spend, find_in

__all__ = ["Storage", "StorageKind", "TensorGlobals"]

_VIEWS_FREE = 1 << 30  # bytes that views of small storages may show, whatever the file's size
_VIEWS_FACTOR = 64


class StorageKind:
    """A storage class of torch; `dtype` None: a quantized one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dtype = TORCH_STORAGES[name]


class Storage:
    """A run of bytes that tensors are views of; none yet (None) in a legacy file's first pass."""

    name = "torch.storage"

    def __init__(self, dtype: np.dtype[Any], data: Bytes | None, big_endian: bool = False) -> None:
        self.dtype = dtype
        self.data = data
        self._big_endian = big_endian
        self._swapped: Bytes | None = None

    def view(
        self, dtype: np.dtype[Any], offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
    ) -> npt.NDArray[Any]:
        """View it; offset and stride count elements. DamagedError where that leaves the storage."""
        if self.data is None:
            return np.empty(0)
        data = self.data
        if self._big_endian and dtype.itemsize > 1:
            if dtype in ML_DTYPES.values():  # these have no other byte order
                data = self._swap()
            else:
                dtype = dtype.newbyteorder(">")
        size = dtype.itemsize
        try:
            return as_array(
                data, offset * size, dtype, shape, tuple(size * step for step in stride)
            )
        except (ValueError, OverflowError):
            what = f"a tensor (offset {offset}, size {shape}, stride {stride}) leaves its storage"
            raise DamagedError(f"{what} of {len(data)} bytes") from None

    def _swap(self) -> Bytes:
        if self._swapped is None and self.data is not None:
            if len(self.data) % 2:
                raise DamagedError("a storage of 16 bit numbers has an odd number of bytes")
            self._swapped = self.data.view(np.uint16).byteswap().view(np.uint8)
        assert self._swapped is not None
        return self._swapped


class TensorGlobals:
    """The allow list of one torch file. What it builds shows a bounded number of bytes in all."""

    def __init__(self, file_size: int) -> None:
        self._left = _VIEWS_FREE + _VIEWS_FACTOR * file_size
        self._seen: dict[tuple[object, ...], npt.NDArray[Any]] = {}

    def find(self, module: str, name: str) -> object:
        """Return what stands for a global. Raises RefusedError, naming it, where nothing does."""
        kind = name if module in ("torch", "torch.storage", "torch.cuda") else ""
        if kind in TORCH_STORAGES:
            return StorageKind(kind)
        found = find_in(_ALLOWED, module, name)
        if isinstance(found, _Maker):
            # Bound only now: kept, it would tie this object and the mapped pages into a cycle.
            return Global(found.name, partial(found.build, self))
        return found

    def _tensor(self, args: tuple[Any, ...], spend: Spend) -> npt.NDArray[Any]:
        """`(storage, offset, size, stride[, requires_grad, hooks[, metadata]])`."""
        if not 4 <= len(args) <= 7:
            raise DamagedError("a tensor is not made from a storage, offset, size and stride")
        return self._view(args[0], None, args[1:4], args[6] if len(args) == 7 else None)

    def _tensor_v3(self, args: tuple[Any, ...], spend: Spend) -> npt.NDArray[Any]:
        """`(storage, offset, size, stride, requires_grad, hooks, dtype[, metadata])`."""
        if not 7 <= len(args) <= 8 or type(args[6]) is not str or args[6] not in TORCH_NAMES:
            raise DamagedError(
                "a tensor is not made from a storage, offset, size, stride and dtype"
            )
        dtype = TORCH_NAMES[args[6]]
        if dtype is None:
            raise RefusedError(
                f"a tensor has dtype {args[6]}, which NumPy and ml_dtypes do not have"
            )
        return self._view(args[0], dtype, args[1:4], args[7] if len(args) == 8 else None)

    def _view(
        self, storage: object, dtype: np.dtype[Any] | None, place: tuple[Any, ...], bits: object
    ) -> npt.NDArray[Any]:
        if not isinstance(storage, Storage):
            raise DamagedError("a tensor has no storage")
        plain = type(bits) is dict and all(bit is False for bit in bits.values())
        if bits is not None and not plain:
            raise RefusedError(
                "a tensor is a lazy conjugate or negative; save it after .resolve_conj()"
            )
        (offset,), shape, stride = sizes((place[0],)), sizes(place[1]), sizes(place[2])
        if len(shape) != len(stride):
            raise DamagedError("a tensor has not as many strides as dimensions")
        dtype = storage.dtype if dtype is None else dtype
        what = (storage, dtype, offset, shape, stride)
        if what not in self._seen:
            self._left -= math.prod(shape) * dtype.itemsize
            if self._left < 0:
                raise DamagedError("its tensors show far more bytes than the file has")
            self._seen[what] = storage.view(dtype, offset, shape, stride)
        return self._seen[what]

    def _parameter(self, args: tuple[Any, ...], spend: Spend) -> object:
        """Return a parameter's tensor; what Python attributes it had is not kept."""
        if not 3 <= len(args) <= 4 or not isinstance(args[0], np.ndarray):
            raise DamagedError("a parameter is not made from a tensor")
        return args[0]

    def _device_tensor(self, args: tuple[Any, ...], spend: Spend) -> object:
        """Return a tensor of a device without storages, from the same on the CPU."""
        if len(args) != 4 or not isinstance(args[0], np.ndarray):
            raise DamagedError("a tensor of a device is not made from a tensor")
        if type(args[1]) is not str or TORCH_NAMES.get(args[1]) != args[0].dtype:
            raise RefusedError("a tensor of a device changes its dtype; save it after .cpu()")
        return args[0]

    def _from_type(self, args: tuple[Any, ...], spend: Spend) -> object:
        """Make a tensor of `(function, class, args, state)`, whose attributes are not kept."""
        if len(args) != 4 or type(args[2]) is not tuple:
            raise DamagedError("a tensor with attributes is not made as torch does")
        names = [part.name if isinstance(part, Global) else "" for part in args[:2]]
        if not names[0].startswith("torch._utils._rebuild_") or names[1] not in _TENSOR_CLASSES:
            raise RefusedError(
                "the pickle holds a tensor of a class of its own, which is not stored"
            )
        return args[0].call(args[2], spend)


def _size(args: tuple[Any, ...], spend: Spend) -> tuple[int, ...]:
    if len(args) != 1:
        raise DamagedError("a torch.Size is not made from a tuple")
    return sizes(args[0])


def _device(args: tuple[Any, ...], spend: Spend) -> str:
    if len(args) in (1, 2) and type(args[0]) is str and all(type(n) is int for n in args[1:]):
        spend(len(args[0]))
        return ":".join(str(part) for part in args) if sizes(args[1:]) else args[0]
    raise DamagedError("a torch.device is not made from text and a number")


def _layout(args: tuple[Any, ...], spend: Spend) -> object:
    if len(args) == 1 and is_text(args[0], "torch.strided"):
        return args[0]
    raise RefusedError("the pickle holds a sparse layout, which is not stored")


_TENSOR_CLASSES = ("torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")
_STATIC: dict[str, object] = {
    **PLAIN_GLOBALS,
    **{name: name for name in TORCH_NAMES},  # a dtype is its name as text, as a device is
    **{name: Global(name) for name in _TENSOR_CLASSES},
    "torch.Size": Global("torch.Size", _size),
    "torch.device": Global("torch.device", _device),
    "torch.serialization._get_layout": Global("torch.serialization._get_layout", _layout),
}


class _Maker(NamedTuple):
    """A global that makes tensors: what stands for it needs to know the file."""

    name: str
    build: Callable[[TensorGlobals, tuple[Any, ...], Spend], object]


_MAKERS = {
    "torch._utils._rebuild_tensor": TensorGlobals._tensor,
    "torch._utils._rebuild_tensor_v2": TensorGlobals._tensor,
    "torch._utils._rebuild_tensor_v3": TensorGlobals._tensor_v3,
    "torch._utils._rebuild_parameter": TensorGlobals._parameter,
    "torch._utils._rebuild_parameter_with_state": TensorGlobals._parameter,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": TensorGlobals._device_tensor,
    "torch._tensor._rebuild_from_type_v2": TensorGlobals._from_type,
}
_ALLOWED = {**_STATIC, **{name: _Maker(name, build) for name, build in _MAKERS.items()}}
