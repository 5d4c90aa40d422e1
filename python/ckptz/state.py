"""A state as a flat list of tensors and plain values: `flatten`. Its inverse is `unflatten`.

Between the two lie a schema and, in preorder, one entry for each tensor and each plain value.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from . import schema as s
from .errors import UnsupportedTypeError
from .keypath import Key, key_fits, key_size, to_text
from .leaves import Handler, Leaves, refuse
from .rebuild import tensor, unflatten

__all__ = ["FlatState", "contiguous", "flatten", "is_contiguous", "tensor", "unflatten"]

_ABSENT = object()
_SURELY_FITS = 10_000  # characters of a key


class FlatState(msgspec.Struct):
    """What `flatten` makes of a state."""

    schema: bytes
    """Encoded schema: structure, dtypes and shapes, never plain values."""
    arrays: list[NDArray[Any]]
    """One array a tensor, in preorder: the caller's memory, in its layout and byte order."""
    values: list[object]
    """One object a plain value, in preorder."""
    own: bool = False
    """Whether the arrays are a copy that nobody else can change."""


def flatten(state: object) -> FlatState:
    """List the tensors and plain values of a state, without copying or changing any.

    Leaves that are the same memory whole (address, dtype, shape, strides) become one tensor. Of
    an ordered dict's attributes only `_metadata` is kept; a bytearray is stored as bytes, a
    `numpy.memmap` as an array, a torch parameter as a tensor. Raises `UnsupportedTypeError`,
    which names the key path and the type, for whatever else is not stored.
    """
    walk = _Walk()
    try:
        walk.add(None, state)
    except UnsupportedTypeError as error:
        at = to_text(walk.path) if walk.path else "the state itself"
        raise UnsupportedTypeError(f"{at}: {error}") from error.__cause__
    finally:
        # They refer to the walk and it to them: without this the caller's arrays would live on
        # until the garbage collector comes by.
        walk.handlers.clear()
    leaves = walk.leaves
    if len(leaves.nodes) > s.MAX_NODES:
        raise UnsupportedTypeError(f"cannot store more than {s.MAX_NODES} leaves and containers")
    return FlatState(s.Schema.encode(leaves.nodes), leaves.arrays, leaves.values)


def contiguous(array: NDArray[Any]) -> NDArray[Any]:
    """C-contiguous, aligned, native (little-endian) array of the same shape and values.

    The very same object if it is all that already (of a `numpy.memmap` a view), else a copy.
    """
    if is_contiguous(array):
        return array if type(array) is np.ndarray else array.view(np.ndarray)
    # Not `np.array`, which takes the size 0 of an empty text for "any size".
    copy: NDArray[Any] = np.ndarray(array.shape, array.dtype.newbyteorder("="))
    np.copyto(copy, array)
    return copy


def is_contiguous(array: NDArray[Any]) -> bool:
    """Whether `contiguous` would not have to copy."""
    flags = array.flags
    return bool(flags.c_contiguous and flags.aligned and array.dtype.isnative)


class _Walk:
    """One walk over a state, in preorder.

    The handlers append nodes with the key that they are given; `path` holds the keys from the
    root down to where the walk is. The limit on depth bounds the recursion.
    """

    def __init__(self) -> None:
        self.leaves = Leaves()
        self.path: list[Key] = []
        self.handlers: dict[type, Handler] = self.leaves.handlers()
        kinds = {dict: s.DICT, Counter: s.COUNTER, list: s.LIST, tuple: s.TUPLE}
        if self.leaves.torch is not None:
            kinds[self.leaves.torch.Size] = s.TORCH_SIZE
        for kind, tag in kinds.items():
            self.handlers[kind] = self._container(tag, tag in s.DICT_LIKE)
        self.handlers |= {OrderedDict: self._ordered_dict, defaultdict: self._default_dict}
        # Of the open containers: their identities, and the lengths of their key paths.
        self._active: set[int] = set()
        self._weights: list[int] = []
        self._path_bytes = 0
        self._classes: set[tuple[str, tuple[str, ...]]] = set()

    def add(self, key: Key, value: object) -> None:
        """Append the nodes of a value."""
        handler = self.handlers.get(type(value))
        if handler is None:
            handler = self.handlers[type(value)] = self._other(value)
        handler(key, value)

    def _other(self, value: object) -> Handler:
        if isinstance(value, np.generic):
            return self.leaves.scalar
        if isinstance(value, tuple) and isinstance(getattr(value, "_fields", None), tuple):
            return self._named_tuple
        torch = self.leaves.torch
        if torch is not None and isinstance(value, torch.Tensor):
            refuse(value, "convert it to a plain tensor (a DTensor with `.to_local()`)")
        refuse(value)

    def _children(
        self,
        container: Collection[object],
        children: Iterable[tuple[Any, object]],
        keyed: bool,
        attribute: object = _ABSENT,
    ) -> None:
        """Append the children of a container whose own node stands."""
        self._enter(container, len(container) + (attribute is not _ABSENT))
        path, handlers = self.path, self.handlers
        for key, value in children:
            if keyed and (type(key) is not str or len(key) > _SURELY_FITS):
                self._check_key(key)
            path[-1] = key
            handler = handlers.get(type(value))
            if handler is None:
                handler = handlers[type(value)] = self._other(value)
            handler(key if keyed else None, value)
        if attribute is not _ABSENT:
            path[-1] = None
            self.add(None, attribute)
        path.pop()
        self._weights.pop()
        self._active.remove(id(container))

    def _enter(self, container: object, children: int) -> None:
        if id(container) in self._active:
            raise UnsupportedTypeError("cannot store a container that contains itself")
        if len(self.path) >= s.MAX_DEPTH:
            raise UnsupportedTypeError(
                f"cannot store more than {s.MAX_DEPTH} containers within one another"
            )
        weight = self._weights[-1] + key_size(self.path[-1]) if self.path else 0
        self._path_bytes += weight * children
        if self._path_bytes > s.MAX_PATHS:
            raise UnsupportedTypeError("cannot store so many so long key paths")
        self._active.add(id(container))
        self._weights.append(weight)
        self.path.append(None)

    def _check_key(self, key: object) -> None:
        kind = type(key)
        if (kind is str or kind is int) and key_fits(key):  # type: ignore[arg-type]
            return
        self.path.pop()
        if kind is str or kind is int:
            raise UnsupportedTypeError("cannot store a key of more than 2^20 bytes, or 64 bits")
        shown = f"{key!r:.80}"
        raise UnsupportedTypeError(
            f"cannot store the key {shown} of type {kind.__qualname__}; keys are str or int"
        )

    def _container(self, tag: int, keyed: bool) -> Handler:
        """Make the handler of a kind of container that has no more to it than its children."""

        def handle(key: Key, value: Any) -> None:
            self.leaves.nodes.append((key, tag, len(value)))
            self._children(value, value.items() if keyed else enumerate(value), keyed)

        return handle

    def _default_dict(self, key: Key, value: defaultdict[Any, object]) -> None:
        factory: Any = value.default_factory
        name = None if factory is None else getattr(factory, "__name__", "")
        if factory is not None and s.FACTORIES.get(str(name)) is not factory:
            refuse(value, f"its factory must be None or one of {', '.join(s.FACTORIES)}")
        self.leaves.nodes.append((key, s.DEFAULT_DICT, len(value), name))
        self._children(value, value.items(), True)

    def _ordered_dict(self, key: Key, value: OrderedDict[Any, object]) -> None:
        attribute = vars(value).get("_metadata", _ABSENT)
        node = (key, s.ORDERED_DICT, len(value), int(attribute is not _ABSENT))
        self.leaves.nodes.append(node)
        self._children(value, value.items(), True, attribute)

    def _named_tuple(self, key: Key, value: Any) -> None:
        name, fields = type(value).__name__, value._fields
        texts = (name, *fields)
        if len(fields) != len(value) or not all(type(t) is str and key_fits(t) for t in texts):
            refuse(value, "its `_fields` do not name its items")
        if len(set(fields)) != len(fields):
            refuse(value, "two of its fields have the same name")
        self._classes.add((name, fields))
        if len(self._classes) > s.MAX_CLASSES:
            refuse(value, f"there are more than {s.MAX_CLASSES} such classes")
        self.leaves.nodes.append((key, s.NAMED_TUPLE, len(value), name, fields))
        self._children(value, zip(fields, value, strict=True), False)
