"""Leaves that are torch tensors: views of their memory as NumPy arrays, and back.

torch is never imported here unless a restore asks for torch tensors; a state can hold one only
if its owner has imported torch.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from numpy.typing import NDArray

from .dtypes import BUILTIN, layout, numpy_dtype

__all__ = ["Viewer", "from_array", "imported", "installed"]

# Types for the exchange of those that NumPy itself has not.
_VIA = {1: "uint8", 2: "int16", 4: "int32"}


def imported() -> Any | None:
    """Torch, if the program has imported it (whole: not while that is under way)."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "Tensor") and hasattr(torch, "nn") else None


def installed() -> Any | None:
    """Torch, imported now if it is installed."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        return None


class Viewer:
    """Views dense CPU tensors as arrays."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        # By torch dtype: its name, and where NumPy lacks it an integer type and a NumPy dtype.
        self._kinds: dict[Any, tuple[str, Any, Any]] = {}

    def view(self, tensor: Any) -> tuple[NDArray[Any], str, int]:
        """View a tensor as an array of the same shape and strides, without a copy.

        Returns the array, the name of its dtype, and its address: 0 if it shares memory with no
        other leaf (it is empty, or a lazy conjugate or negative, which is copied).
        Raises `TypeError`, with what the user can do about it, for a tensor that is not dense,
        not on the CPU, quantized, or of a dtype without a name.
        """
        try:
            name, carrier, dtype = self._kinds.get(tensor.dtype) or self._kind(tensor)
            if tensor.requires_grad:
                tensor = tensor.detach()
            if carrier is None:
                return tensor.numpy(), name, tensor.data_ptr()
            if tensor.is_conj() or tensor.is_neg():
                return self._resolved(tensor)
            return tensor.view(carrier).numpy().view(dtype), name, tensor.data_ptr()
        except (RuntimeError, TypeError) as error:
            if tensor.is_cpu and (tensor.is_conj() or tensor.is_neg()):
                return self._resolved(tensor)
            raise TypeError(_refusal(self._torch, tensor, error)) from error

    def _kind(self, tensor: Any) -> tuple[str, Any, Any]:
        name = str(tensor.dtype)[6:]  # after "torch."
        if layout(name) is None:
            raise TypeError("no such dtype")
        carrier = None if name in BUILTIN else getattr(self._torch, _VIA[tensor.element_size()])
        kind = self._kinds[tensor.dtype] = name, carrier, numpy_dtype(name)
        return kind

    def _resolved(self, tensor: Any) -> tuple[NDArray[Any], str, int]:
        array, name, _ = self.view(tensor.resolve_conj().resolve_neg())
        return array, name, 0


def _refusal(torch: Any, tensor: Any, error: Exception) -> str:
    if tensor.device.type == "meta":
        return "cannot store a torch tensor on the device meta: it has no values"
    if not tensor.is_cpu:
        return f"cannot store a torch tensor on the device {tensor.device}; use `.cpu()` first"
    if tensor.is_nested:
        return "cannot store a nested torch tensor; use `.unbind()` first"
    if tensor.layout is not torch.strided:
        return f"cannot store a torch tensor of layout {tensor.layout}; use `.to_dense()` first"
    if tensor.is_quantized:
        return "cannot store a quantized torch tensor; store its `.int_repr()` and scales"
    if layout(str(tensor.dtype)[6:]) is None:
        return f"cannot store a torch tensor of dtype {tensor.dtype}; use `.to()` first"
    return f"cannot store a torch tensor without memory of its own ({error})"


def from_array(torch: Any, array: NDArray[Any], name: str) -> Any:
    """Make a tensor that shares the memory of a C-contiguous native array of the named dtype.

    Returns the array itself where this torch lacks the dtype. A read-only array is copied.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        return array
    if not array.flags.writeable:
        array = array.copy()
    if name in BUILTIN:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(_VIA[array.itemsize])).view(dtype)
