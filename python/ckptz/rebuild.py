"""A state from its schema, arrays and plain values: `unflatten`.

Nothing is imported or called because a schema says so, torch and the built-in factories excepted.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, namedtuple
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from numpy.typing import NDArray

from . import schema as s
from . import torch as torch_leaves
from .errors import FormatError
from .messagepack import Node
from .schema import Schema

__all__ = ["tensor", "unflatten"]

_MOST_FIELDS = 1024  # of a class made here: that takes microseconds a field


def unflatten(
    schema: Schema,
    arrays: Sequence[NDArray[Any]],
    values: Sequence[object],
    *,
    as_numpy: bool = False,
    types: Sequence[type] = (),
) -> object:
    """Build a state from what `flatten` lists: `arrays` as `dtypes.numpy_dtype` has them.

    The arrays become part of the state, not copies; torch tensors share their memory (the arrays
    must be C-contiguous). With `as_numpy`, or where torch is not installed, there are arrays for
    tensors and tuples for `torch.Size`. A named tuple is made as the class among `types` with its
    name and fields, else as a class like it, else (names that no class could have) as a tuple.
    Raises `FormatError` where the values do not suit the schema, `TypeError` for wrong `types`.
    """
    for cls in types:
        if not (issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)):
            raise TypeError(f"types: {cls.__qualname__} is not a class of named tuples")
    if len(arrays) != len(schema.tensors) or len(values) != schema.value_count:
        raise FormatError(
            f"the schema has {len(schema.tensors)} tensors and {schema.value_count} values, "
            f"but {len(arrays)} and {len(values)} are there"
        )
    return _Builder(schema, arrays, values, as_numpy, types).build()


def tensor(node: s.TensorNode, array: NDArray[Any], *, as_numpy: bool = False) -> Any:
    """Leaf of one tensor: the array, or for a torch leaf a torch tensor that shares its memory."""
    if as_numpy or node.flavour == 0:
        return array
    torch = torch_leaves.installed()
    return array if torch is None else torch_leaves.from_array(torch, array, node.dtype)


@lru_cache(maxsize=128)
def _class_like(name: str, fields: tuple[str, ...]) -> type:
    if len(fields) <= _MOST_FIELDS:
        try:
            made: Any = namedtuple(name, fields, rename=True, module=__name__)  # type: ignore[misc]
        except (ValueError, SyntaxError):
            return tuple
        if made._fields == fields:
            cls: type = made
            return cls
    return tuple


class _Builder:
    """Takes the schema's nodes in order; their checked depth bounds the recursion."""

    def __init__(
        self,
        schema: Schema,
        arrays: Sequence[NDArray[Any]],
        values: Sequence[object],
        as_numpy: bool,
        types: Sequence[type],
    ) -> None:
        self.nodes = iter(schema.nodes)
        self.tensors = zip(schema.tensors, arrays, strict=True)
        self.values = iter(values)
        self.as_numpy = as_numpy
        self.classes = {(cls.__name__, cls._fields): cls for cls in types}  # type: ignore[attr-defined]
        self.made: list[object] = []

    def build(self) -> object:
        """Build the next node with all below it."""
        return self._make(next(self.nodes))

    def _make(self, node: Node) -> object:
        tag = node[1]
        if tag == s.TENSOR:
            leaf = tensor(*next(self.tensors), as_numpy=self.as_numpy)
            self.made.append(leaf)
            return leaf
        if tag == s.VALUE:
            return next(self.values)
        if tag == s.SHARED:
            return self.made[node[2]]
        if tag in s.DICT_LIKE:
            return self._mapping(node)
        children = [self.build() for _ in range(node[2])]
        if tag == s.LIST:
            return children
        if tag == s.NAMED_TUPLE:
            return tuple.__new__(self._class(*node[3:]), children)
        return self._size(children) if tag == s.TORCH_SIZE else tuple(children)

    def _mapping(self, node: Node) -> object:
        tag = node[1]
        made: Any = {}
        if tag == s.ORDERED_DICT:
            made = OrderedDict()
        elif tag == s.COUNTER:
            made = Counter()
        elif tag == s.DEFAULT_DICT:
            made = defaultdict(None if node[3] is None else s.FACTORIES[node[3]])
        for _ in range(node[2]):
            child = next(self.nodes)
            made[child[0]] = self._make(child)
        if tag == s.ORDERED_DICT and node[3]:
            made._metadata = self.build()
        return made

    def _class(self, name: str, fields: tuple[str, ...]) -> type:
        cls = self.classes.get((name, fields))
        if cls is None:
            cls = self.classes[name, fields] = _class_like(name, fields)
        return cls

    def _size(self, children: list[object]) -> object:
        if not all(type(child) is int and -(2**63) <= child < 2**63 for child in children):
            raise FormatError("a torch.Size of values that are not integers of 64 bits")
        torch = None if self.as_numpy else torch_leaves.installed()
        return tuple(children) if torch is None else torch.Size(children)
