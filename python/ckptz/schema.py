"""The schema blob (format.md, section 4): a state's tree as a flat list of nodes.

`Schema.parse` takes bytes from anywhere: it raises nothing but `FormatError`, does not recurse,
and needs memory in proportion to the bytes. Plain values lie outside the schema: `encode_values`
and `decode_values` turn them into what MessagePack holds, and back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from .dtypes import layout, shape_fits
from .errors import FormatError
from .keypath import Key, Keys, key_fits, key_size, to_text
from .messagepack import Node, decode_nodes, decode_values, encode_nodes, encode_values

__all__ = ["Leaf", "Schema", "TensorNode", "decode_values", "encode_values"]

DICT, LIST, TUPLE, NAMED_TUPLE, ORDERED_DICT, COUNTER, DEFAULT_DICT, TORCH_SIZE = range(8)
VALUE, TENSOR, SHARED = 16, 17, 18
DICT_LIKE = frozenset({DICT, ORDERED_DICT, COUNTER, DEFAULT_DICT})
# Lengths of a node, key and tag included. A tensor has two more for a box in a global shape.
_LENGTHS = dict.fromkeys((DICT, LIST, TUPLE, COUNTER, TORCH_SIZE, SHARED), 3)
_LENGTHS |= {ORDERED_DICT: 4, DEFAULT_DICT: 4, NAMED_TUPLE: 5, VALUE: 2, TENSOR: 5}
_TENSOR_IN_BOX = 7
_BUILTINS = (bool, int, float, complex, str, bytes, list, tuple, dict, set)
FACTORIES: dict[str, type] = {kind.__name__: kind for kind in _BUILTINS}

MAX_DEPTH = 32
MAX_NODES = 2**26
MAX_PATHS = 2**30
MAX_CLASSES = 2**12

# Key path of the parent and the last key; empty for the root. Leaves share their parent's path.
Where = tuple[()] | tuple[Keys, Key]


class TensorNode(msgspec.Struct, frozen=True, gc=False):
    """One tensor of a schema."""

    where: Where
    dtype: str
    """Name, as in `dtypes`."""
    shape: tuple[int, ...]
    flavour: int
    """0 NumPy array, 1 torch tensor."""
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    itemsize: int
    """Bytes of one entry."""
    element_type: str
    """`f16`, `bf16`, `f32`, `f64` or `bytes`."""

    @property
    def keys(self) -> Keys:
        """Key path as a tuple; None stands for the attribute `_metadata` of an ordered dict."""
        return _keys(self.where)

    @property
    def path(self) -> str:
        """Key path as text."""
        return to_text(_keys(self.where))


class Leaf(NamedTuple):
    """One leaf of a state."""

    path: str
    kind: str
    """`tensor`, `value` or `shared`."""
    number: int
    """Position among the tensors or the values; of a shared leaf that of the tensor it shares."""


class Schema(msgspec.Struct, frozen=True):
    """A schema that has been checked. Made by `parse`."""

    raw: bytes
    nodes: tuple[Node, ...]
    """Preorder, fields as in the format, with extension types resolved."""
    tensors: tuple[TensorNode, ...]
    value_count: int
    _leaves: tuple[tuple[Where, str, int], ...]

    def leaves(self, *, attributes: bool = False) -> Iterator[Leaf]:
        """Yield the leaves in preorder; those of `_metadata` attributes only if asked for."""
        for where, kind, number in self._leaves:
            keys = _keys(where)
            if attributes or None not in keys:
                yield Leaf(to_text(keys), kind, number)

    @staticmethod
    def encode(nodes: Sequence[Node]) -> bytes:
        """Encode nodes given as in the format, keys as str, int or None. Checks nothing."""
        return encode_nodes(nodes)

    @classmethod
    def parse(cls, blob: bytes) -> Schema:
        """Read and check a blob. Raises `FormatError`, which names the node, if it is not one."""
        try:
            nodes = decode_nodes(blob)
        except FormatError as error:
            raise FormatError(f"schema: {error}") from error
        if not 0 < len(nodes) <= MAX_NODES:
            raise FormatError(f"schema: {len(nodes)} nodes; 1 to {MAX_NODES} are allowed")
        parser = _Parser(nodes)
        try:
            parser.run()
        except FormatError as error:
            raise FormatError(f"schema: node {parser.at}: {error}") from error
        found = tuple(parser.tensors), parser.values, tuple(parser.leaves)
        return cls(bytes(blob), tuple(nodes), *found)


def _keys(where: Where) -> Keys:
    return (*where[0], where[1]) if where else ()


class _Open(msgspec.Struct):
    """A container some of whose children are still to come."""

    tag: int
    keys: Keys
    left: int
    keyless: int
    """How many of the last children have no key: all, or the attribute."""
    weight: int
    names: tuple[str, ...] = ()
    seen: set[Key] = msgspec.field(default_factory=set)
    index: int = 0


class _Parser:
    """Checks nodes in their order; the open containers are a stack, not calls."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.at = 0
        self.tensors: list[TensorNode] = []
        self.leaves: list[tuple[Where, str, int]] = []
        self.values = 0
        self.open: list[_Open] = []
        self.path_bytes = 0
        self.classes: set[tuple[str, tuple[str, ...]]] = set()
        self.known: dict[Node, tuple[Any, ...]] = {}

    def run(self) -> None:
        """Check all nodes; `at` is the number of the one at hand."""
        for at, node in enumerate(self.nodes):
            self.at = at
            tag = node[1] if len(node) > 1 else -1
            length = _LENGTHS.get(tag)
            if len(node) != length and not (tag == TENSOR and len(node) == _TENSOR_IN_BOX):
                raise FormatError(f"tag {tag!r:.20} in a node of length {len(node)}")
            where = self._where(node[0], tag)
            if tag == TENSOR:
                self._tensor(where, node)
            elif tag == VALUE:
                self.leaves.append((where, "value", self.values))
                self.values += 1
            elif tag == SHARED:
                self._shared(where, node[2])
            else:
                self._container(where, node)
            while self.open and self.open[-1].left == 0:
                self.open.pop()
        if self.open:
            raise FormatError(f"the last one, but {self.open[-1].left} children are missing")

    def _where(self, key: Key, tag: object) -> Where:
        """Place of the node at hand, the next child of the innermost open container."""
        if not self.open:
            if self.at or key is not None:
                raise FormatError("a second root" if self.at else "a root with a key")
            return ()
        parent = self.open[-1]
        keyed = parent.left > parent.keyless
        parent.left -= 1
        if not keyed:
            return parent.keys, self._implied_key(parent, key, tag)
        if not isinstance(key, str | int) or not key_fits(key):
            raise FormatError("no key" if key is None else "a key that is too long, or an array")
        if key in parent.seen:
            raise FormatError(f"duplicate key {key!r:.80}")
        parent.seen.add(key)
        return parent.keys, key

    def _implied_key(self, parent: _Open, key: Key, tag: object) -> Key:
        if key is not None:
            raise FormatError(f"key {key!r:.80} where there is none")
        if parent.tag == TORCH_SIZE and tag != VALUE:
            raise FormatError("a child of a torch.Size that is no plain value")
        if parent.tag == ORDERED_DICT:
            return None
        parent.index += 1
        return parent.names[parent.index - 1] if parent.names else parent.index - 1

    def _container(self, where: Where, node: Node) -> None:
        tag, count = node[1], node[2]
        if tag == ORDERED_DICT and node[3] not in (0, 1):
            raise FormatError(f"{node[3]!r:.20} attributes of an ordered dict")
        if tag == DEFAULT_DICT and not (node[3] is None or node[3] in FACTORIES):
            raise FormatError(f"unknown factory {node[3]!r:.80} of a default dict")
        attributes = node[3] if tag == ORDERED_DICT else 0
        follow = len(self.nodes) - self.at - 1
        if not isinstance(count, int) or not 0 <= count <= follow - attributes:
            raise FormatError(f"{count!r:.20} children, but {follow} nodes follow")
        children = count + attributes
        if len(self.open) >= MAX_DEPTH:
            raise FormatError(f"more than {MAX_DEPTH} containers within one another")
        weight = self.open[-1].weight + key_size(where[1]) if where else 0
        self.path_bytes += weight * children
        if self.path_bytes > MAX_PATHS:
            raise FormatError(f"key paths of more than {MAX_PATHS} bytes in all")
        keyless = attributes if tag in DICT_LIKE else children
        names = self._names(*node[2:]) if tag == NAMED_TUPLE else ()
        self.open.append(_Open(tag, _keys(where), children, keyless, weight, names))

    def _names(self, count: int, name: object, names: object) -> tuple[str, ...]:
        texts = (name, *names) if isinstance(names, tuple) else (None,)
        if not all(isinstance(text, str) and key_fits(text) for text in texts):
            raise FormatError("a named tuple whose names are not text, or too long")
        found: tuple[str, ...] = texts[1:]
        if len(found) != count or len(set(found)) != count:
            raise FormatError(f"{count} children, {len(set(found))} different field names")
        self.classes.add((str(name), found))
        if len(self.classes) > MAX_CLASSES:
            raise FormatError(f"more than {MAX_CLASSES} classes of named tuples")
        return found

    def _shared(self, where: Where, number: object) -> None:
        if not isinstance(number, int) or not 0 <= number < len(self.tensors):
            raise FormatError(f"shares tensor {number!r:.20}, {len(self.tensors)} stand before it")
        self.leaves.append((where, "shared", number))

    def _tensor(self, where: Where, node: Node) -> None:
        fields = node[2:]
        known = self.known.get(fields)
        if known is None:
            known = self.known[fields] = _tensor_fields(*fields)
        self.leaves.append((where, "tensor", len(self.tensors)))
        self.tensors.append(TensorNode(where, *known))


def _tensor_fields(name: Any, shape: Any, flavour: Any, *box: Any) -> tuple[Any, ...]:
    """Check a tensor's fields and give those of a `TensorNode`."""
    known = layout(name) if isinstance(name, str) else None
    if known is None:
        raise FormatError(f"unknown dtype {name!r:.80}")
    if flavour not in (0, 1):
        raise FormatError(f"unknown flavour {flavour!r:.20}")
    for extent in (shape, *box):
        if not isinstance(extent, tuple) or not all(isinstance(n, int) for n in extent):
            raise FormatError(f"shape or offset {extent!r:.80}")
    whole, offset = box or (shape, (0,) * len(shape))
    if not shape_fits(shape, known.itemsize) or not shape_fits(whole, known.itemsize):
        raise FormatError(f"shape {shape!r:.80} of {name} is negative or too large")
    within = zip(shape, whole, offset, strict=False)
    if not len(shape) == len(whole) == len(offset) or not all(
        0 <= o <= w - n for n, w, o in within
    ):
        raise FormatError(f"shape {shape!r:.80} at {offset!r:.80} is not within {whole!r:.80}")
    if box and whole == shape:
        raise FormatError("a global shape and offset that add nothing")
    return name, shape, flavour, whole, offset, known.itemsize, known.element_type
