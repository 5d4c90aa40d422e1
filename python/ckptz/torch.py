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

__all__ = ["from_array", "imported", "installed", "to_array"]

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


def to_array(torch: Any, tensor: Any) -> tuple[NDArray[Any], str, int]:
    """View a dense CPU tensor as an array of the same shape and strides, without a copy.

    Returns the array, the name of its dtype, and its address: 0 if it shares memory with no
    other leaf (it is empty, or a lazy conjugate or negative, which is copied).
    Raises `TypeError` with what the user can do about it for any other tensor.
    """
    name = str(tensor.dtype)[6:]  # after "torch."
    if not tensor.is_cpu or tensor.layout is not torch.strided or tensor.is_nested:
        raise TypeError(_refusal(torch, tensor))
    if tensor.is_quantized or layout(name) is None:
        raise TypeError(_refusal(torch, tensor))
    try:
        address = tensor.data_ptr()
        if tensor.is_conj() or tensor.is_neg():
            tensor, address = tensor.resolve_conj().resolve_neg(), 0
        if tensor.requires_grad:
            tensor = tensor.detach()
        if name in BUILTIN:
            return tensor.numpy(), name, address
        carrier = getattr(torch, _VIA[tensor.element_size()])
        return tensor.view(carrier).numpy().view(numpy_dtype(name)), name, address
    except (RuntimeError, TypeError) as error:  # a tensor inside a transform such as vmap
        raise TypeError(
            f"cannot store a torch tensor without memory of its own: {error}"
        ) from error


def _refusal(torch: Any, tensor: Any) -> str:
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
    return f"cannot store a torch tensor of dtype {tensor.dtype}; use `.to()` first"


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
