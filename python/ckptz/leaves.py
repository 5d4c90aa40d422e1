"""The leaves of a state as they are met: their nodes, arrays and values, and which share memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set, ValuesView
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from . import torch as torch_leaves
from .dtypes import MAX_BYTES, dtype_name, shape_fits
from .errors import UnsupportedTypeError
from .keypath import Key
from .messagepack import Node, pack
from .schema import SHARED, TENSOR, VALUE

__all__ = ["PLAIN", "Handler", "Leaves", "refuse"]

Handler = Callable[[Key, Any], None]

PLAIN = (type(None), bool, int, float, complex, str, bytes)
_ADVICE = (bool, int, float, complex, str, bytes, dict, list, tuple)
# Of modules, optimizers and generators of random numbers.
_GIVERS = ("state_dict", "get_state", "getstate")


def refuse(value: object, advice: str = "") -> NoReturn:
    """Raise `UnsupportedTypeError` for a value of a type that is not stored."""
    kind = type(value)
    name = kind.__qualname__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    if not advice:
        likes = [like.__name__ for like in _ADVICE if isinstance(value, like)]
        listed = isinstance(value, Iterator | Sequence | Set | ValuesView)
        found = likes[0] if likes else "list" if listed else "number or array"
        advice = f"convert it to a plain {found}"
        if hasattr(kind, "__array__"):
            advice = "convert it to a plain array with `numpy.asarray`"
        for giver in _GIVERS:
            if hasattr(kind, giver):
                advice = f"store what its `{giver}()` returns"
        if hasattr(kind, "bit_generator"):  # a `numpy.random.Generator`
            advice = "store its `bit_generator.state`"
    raise UnsupportedTypeError(f"cannot store a value of type {name}; {advice}")


class Leaves:
    """Collects leaves. Each method of the kind `Handler` appends a leaf's node, with the given key.

    Errors do not name the key path: whoever walks the state adds it.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.arrays: list[NDArray[Any]] = []
        self.values: list[object] = []
        self.torch = torch_leaves.imported()
        self._view = torch_leaves.Viewer(self.torch).view
        self._names: dict[object, str] = {}
        self._leaves: list[Any] = []  # of the tensors; keeps them alive, so that ids are unique
        self._seen: dict[int, int] = {}
        # To get an array's address takes longer than all the rest. As long as no two arrays have
        # the same owner of their memory, and all owners are arrays, no two share any.
        self._owners: dict[int, int] | None = {}
        self._addresses: dict[int, int] = {}
        self._memory: dict[tuple[object, ...], int] = {}

    def handlers(self) -> dict[type, Handler]:
        """Methods by exact type."""
        handlers: dict[type, Handler] = dict.fromkeys(PLAIN, self.value)
        handlers[bytearray] = lambda key, value: self.value(key, bytes(value))
        handlers |= dict.fromkeys((np.ndarray, np.memmap), self.array)
        if self.torch is not None:
            kinds = (self.torch.Tensor, self.torch.nn.Parameter)
            handlers |= dict.fromkeys(kinds, self.torch_tensor)
        return handlers

    def value(self, key: Key, value: object) -> None:
        """Handle a plain value."""
        self.nodes.append((key, VALUE))
        self.values.append(value)

    def scalar(self, key: Key, value: np.generic) -> None:
        """Handle a NumPy scalar."""
        try:
            pack(value)
        except UnsupportedTypeError:
            refuse(value)
        self.value(key, value)

    def array(self, key: Key, array: NDArray[Any]) -> None:
        """Handle a NumPy array."""
        number = self._seen.get(id(array))
        if number is not None:
            self.nodes.append((key, SHARED, number))
            return
        name = self._names.get(array.dtype) or self._name(array)
        owners = self._owners
        if owners is not None:
            owner = array if array.base is None else array.base
            number = len(self.arrays)
            owns = type(owner) is np.ndarray and owner.base is None
            if not owns or owners.setdefault(id(owner), number) != number:
                self._look_up_addresses()
        if self._owners is not None or not self._shared(key, _address(array), array, array):
            self._append(key, array, array, name, 0)

    def _look_up_addresses(self) -> None:
        self._owners = None
        for number, leaf in enumerate(self._leaves):
            if isinstance(leaf, np.ndarray):
                self._first_with(_address(leaf), number, leaf, leaf)

    def torch_tensor(self, key: Key, leaf: Any) -> None:
        """Handle a torch tensor or parameter."""
        number = self._seen.get(id(leaf))
        if number is not None:
            self.nodes.append((key, SHARED, number))
            return
        try:
            array, name, address = self._view(leaf)
        except TypeError as error:
            raise UnsupportedTypeError(str(error)) from error
        if not self._shared(key, address, leaf, array):
            self._append(key, leaf, array, name, 1)

    def _shared(self, key: Key, address: int, leaf: Any, array: NDArray[Any]) -> bool:
        """Append a shared node if an earlier leaf is the same memory whole."""
        number = len(self.arrays)
        first = self._first_with(address, number, leaf, array)
        if first == number:
            return False
        self.nodes.append((key, SHARED, first))
        return True

    def _first_with(self, address: int, number: int, leaf: Any, array: NDArray[Any]) -> int:
        """Find the number of the first tensor that is the same memory whole: it may be this."""
        first = self._addresses.setdefault(address, number) if address else number
        if first == number:
            return number
        self._memory.setdefault(_memory(address, self._leaves[first], self.arrays[first]), first)
        return self._memory.setdefault(_memory(address, leaf, array), number)

    def _append(self, key: Key, leaf: Any, array: NDArray[Any], name: str, flavour: int) -> None:
        shape = array.shape
        if not 0 < array.nbytes <= MAX_BYTES and not shape_fits(shape, array.itemsize):
            raise UnsupportedTypeError(f"cannot store an array of shape {shape}: it is too large")
        self._seen[id(leaf)] = len(self.arrays)
        self._leaves.append(leaf)
        self.arrays.append(array)
        self.nodes.append((key, TENSOR, name, shape, flavour))

    def _name(self, array: NDArray[Any]) -> str:
        name = dtype_name(array.dtype)
        if name is None:
            refuse(array, f"arrays of dtype {array.dtype} are not stored")
        self._names[array.dtype] = name
        return name


def _address(array: NDArray[Any]) -> int:
    """Address of an array, 0 for one without bytes."""
    address: int = array.__array_interface__["data"][0] if array.nbytes else 0
    return address


def _memory(address: int, leaf: Any, array: NDArray[Any]) -> tuple[object, ...]:
    # The leaf's own dtype, torch's or NumPy's, says more than its name: the byte order.
    return isinstance(leaf, np.ndarray), address, array.shape, array.strides, leaf.dtype
