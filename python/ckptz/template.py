"""Restoring into the structure of a template, each leaf checked against it."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from . import torch as torch_leaves
from .dtypes import dtype_name, numpy_dtype
from .errors import MismatchError, MissingKeyError, UnsupportedTypeError
from .keypath import Key, Keys, key_fits, to_text
from .rebuild import tensor
from .restore import OpenChain
from .schema import MAX_DEPTH, Leaf

__all__ = ["Template"]

_SHOWN = 8
# How far a cast may go: up this ladder, or within a rung.
_RUNGS = [r"bool", r"u?int\d+", r"float\w+|bfloat16|<f\d+", r"b?complex\d+|<c\d+"]
# Not numbers to NumPy, only to torch.
_OPAQUE = re.compile(r"u?int[3567]|float4_e2m1fn_x2|complex32")


class _Wanted(msgspec.Struct):
    """A leaf of the template."""

    keys: Keys
    like: Any
    optional: bool
    """Whether the template's own value serves where the snapshot has none."""


class Template:
    """A state whose structure, shapes and dtypes a restored one must have.

    Its leaves are arrays, torch tensors, or anything with a shape and a dtype; any other leaf
    stands for a plain value, whatever that is. It may be a part of the state: keys that it lacks
    are left out, and of a list or tuple that is shorter here the last items.
    """

    def __init__(self, like: object, *, cast: bool = False) -> None:
        """Take a template. Raises `UnsupportedTypeError` for containers that no state has."""
        self._like = like
        self._cast = cast
        self._leaves = list(_walk((), like, False, 0))

    def fill(
        self,
        chain: OpenChain,
        as_numpy: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Any:
        """Return a state of the template's structure. Only its tensors are read.

        Raises `MissingKeyError`, `MismatchError`, and what reading raises.
        """
        known = {leaf.path: leaf for leaf in chain.schema.leaves(attributes=True)}
        pairs = [(wanted, known.get(to_text(wanted.keys))) for wanted in self._leaves]
        missing = [to_text(w.keys) for w, leaf in pairs if leaf is None and not w.optional]
        if missing:
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            raise MissingKeyError(
                f"step {chain.entry.meta.step} has no {', '.join(missing[:_SHOWN])}{more}"
            )
        for wanted, leaf in pairs:
            if leaf is not None:
                self._check(chain, wanted, leaf)
        numbers = sorted({leaf.number for _, leaf in pairs if leaf and leaf.kind != "value"})
        arrays = dict(zip(numbers, chain.arrays(numbers, progress), strict=True))
        filler = _Filler(chain, arrays, as_numpy)
        leaves = iter([filler.leaf(wanted, leaf) for wanted, leaf in pairs])
        return _rebuilt(self._like, leaves)

    def _check(self, chain: OpenChain, wanted: _Wanted, leaf: Leaf) -> None:
        name = _name(wanted.like)
        if leaf.kind == "value":
            if name is not None:
                raise self._refusal(wanted, _text(name, wanted.like.shape), "a plain value")
            return
        node = chain.schema.tensors[leaf.number]
        there = _text(node.dtype, node.shape)
        if name is None:
            raise self._refusal(wanted, f"a {type(wanted.like).__qualname__}", there)
        fits = name == node.dtype or (self._cast and _castable(node.dtype, name))
        if tuple(wanted.like.shape) != node.shape or not fits:
            raise self._refusal(wanted, _text(name, wanted.like.shape), there)

    @staticmethod
    def _refusal(wanted: _Wanted, template: str, there: str) -> MismatchError:
        return MismatchError(
            f"{to_text(wanted.keys)}: the template has {template}, the snapshot {there}"
        )


class _Filler:
    """Makes the leaves of the result; those that share memory in the snapshot share it here."""

    def __init__(self, chain: OpenChain, arrays: dict[int, NDArray[Any]], as_numpy: bool) -> None:
        self._nodes = chain.schema.tensors
        self._values = chain.plain_values()
        self._arrays = arrays
        self._as_numpy = as_numpy
        self._made: dict[tuple[int, str, bool], Any] = {}

    def leaf(self, wanted: _Wanted, leaf: Leaf | None) -> Any:
        if leaf is None:
            return wanted.like
        if leaf.kind == "value":
            return self._values[leaf.number]
        node, array = self._nodes[leaf.number], self._arrays[leaf.number]
        name = _name(wanted.like) or node.dtype
        torch = torch_leaves.imported()
        is_torch = torch is not None and isinstance(wanted.like, torch.Tensor)
        as_numpy = self._as_numpy or isinstance(wanted.like, np.ndarray)
        key = (leaf.number, name, is_torch or not as_numpy)
        if key not in self._made:
            if name != node.dtype:
                array = _converted(array, name, wanted)
            if is_torch:
                self._made[key] = torch_leaves.from_array(torch, array, name)
            elif name != node.dtype:
                self._made[key] = array
            else:
                self._made[key] = tensor(node, array, as_numpy=as_numpy)
        return self._made[key]


def _walk(keys: Keys, like: Any, optional: bool, depth: int) -> Iterator[_Wanted]:
    """Yield the leaves of a template, in the order in which `_rebuilt` takes them."""
    if not isinstance(like, dict | list | tuple):
        yield _Wanted(keys, like, optional)
        return
    where = to_text(keys)
    if depth >= MAX_DEPTH:
        raise UnsupportedTypeError(f"{where}: more than {MAX_DEPTH} containers in one another")
    for key, child in _children(like, where):
        # An ordered dict's attribute, which many a snapshot lacks: the template's own serves too.
        yield from _walk((*keys, key), child, optional or key is None, depth + 1)


def _children(like: Any, where: str) -> list[tuple[Key, Any]]:
    kind = type(like)
    fields = getattr(kind, "_fields", None)
    if kind in (dict, OrderedDict, defaultdict, Counter):
        for key in like:
            if type(key) not in (str, int) or not key_fits(key):
                raise UnsupportedTypeError(f"{where}: a template with the key {key!r:.80}")
        children = list(like.items())
        if kind is OrderedDict and "_metadata" in vars(like):
            children.append((None, vars(like)["_metadata"]))
        return children
    if isinstance(like, tuple) and isinstance(fields, tuple) and len(fields) == len(like):
        return list(zip(fields, like, strict=True))
    if kind in (list, tuple) or kind.__name__ == "Size":
        return list(enumerate(like))
    raise UnsupportedTypeError(f"{where}: a template with a container of type {kind.__qualname__}")


def _rebuilt(like: Any, leaves: Iterator[Any]) -> Any:
    if not isinstance(like, dict | list | tuple):
        return next(leaves)
    if isinstance(like, dict):
        made: Any = defaultdict(like.default_factory) if isinstance(like, defaultdict) else {}
        if isinstance(like, OrderedDict | Counter):
            made = type(like)()
        for key, child in like.items():
            made[key] = _rebuilt(child, leaves)
        if isinstance(like, OrderedDict) and "_metadata" in vars(like):
            made._metadata = _rebuilt(vars(like)["_metadata"], leaves)
        return made
    children = [_rebuilt(child, leaves) for child in like]
    if isinstance(like, list):
        return children
    return tuple.__new__(type(like), children)


def _name(like: Any) -> str | None:
    """Name of a template leaf's dtype; None for a leaf that is no array."""
    if isinstance(like, np.generic) or not (hasattr(like, "shape") and hasattr(like, "dtype")):
        return None
    text = str(like.dtype)
    if text.startswith("torch."):
        return text[6:]
    try:
        return dtype_name(np.dtype(like.dtype)) or text
    except TypeError:
        return text


def _text(name: str | None, shape: Any) -> str:
    return f"{name} of shape {tuple(shape)}"


def _castable(name: str, to: str) -> bool:
    rungs = [
        [rung for rung, pattern in enumerate(_RUNGS) if re.fullmatch(pattern, one)]
        for one in (name, to)
        if not _OPAQUE.fullmatch(one)
    ]
    return len(rungs) == 2 and all(rungs) and rungs[0] <= rungs[1]


def _converted(array: NDArray[Any], name: str, wanted: _Wanted) -> NDArray[Any]:
    made = array.astype(numpy_dtype(name))
    whole = re.fullmatch(_RUNGS[1], name) is not None
    # There and back shows what does not fit, but for the sign of as wide an integer.
    if whole and not (
        np.array_equal(made.astype(array.dtype), array) and np.array_equal(made < 0, array < 0)
    ):
        raise MismatchError(
            f"{to_text(wanted.keys)}: the snapshot has numbers that do not fit into {name}"
        )
    return made
