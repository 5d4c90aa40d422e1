"""Checks the state that a pickle built: only what can be stored, and only as much as it seems."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FormatError, UnsupportedTypeError
from ..leaves import PLAIN
from ..schema import MAX_NODES
from .base import brief

__all__ = ["check_tree"]

_DEEPEST = 1000  # the format's limit is 32, of which the state's own error tells
_CONTAINERS = (dict, OrderedDict, defaultdict, Counter, list, tuple)


def check_tree(path: Path, state: object) -> None:
    """Raise UnsupportedTypeError for a leaf that is no value, FormatError for a state without end.

    A pickle may use a value in many places, so that a few bytes stand for a tree of any size, or
    put it inside itself. Each value is visited once, without recursion.
    """
    counts: dict[int, int] = {}  # nodes of each container that was visited; 0 while it is open
    root = _Open((state,), None)
    open_ = [root]
    while open_:
        parent = open_[-1]
        child = next(parent.children, None)
        if child is None:
            open_.pop()
            counts[id(parent.node)] = parent.nodes
            if parent.nodes > MAX_NODES:
                raise FormatError(f"{path}: the state has more than {MAX_NODES} values")
            if open_:
                open_[-1].nodes += parent.nodes
            continue
        key, node = child
        if type(node) not in _CONTAINERS:
            _check_leaf(path, node, open_, key)
            parent.nodes += 1
        elif id(node) not in counts:
            if len(open_) > _DEEPEST:
                raise FormatError(f"{path}: the state is over {_DEEPEST} containers deep")
            counts[id(node)] = 0
            open_.append(_Open(node, key))
        elif not counts[id(node)]:
            where = _path(open_, key)
            raise FormatError(f"{path}: the state at {where} contains itself")
        else:
            parent.nodes += counts[id(node)]


def _check_leaf(path: Path, leaf: Any, open_: list[_Open], key: object) -> None:
    if isinstance(leaf, (np.ndarray, np.generic, *PLAIN)):
        return
    name = f"`{leaf.name}`" if hasattr(leaf, "name") else f"a {type(leaf).__name__}"
    where = _path(open_, key)
    raise UnsupportedTypeError(f"{path}: the state at {where} holds {name}, which is no value")


class _Open:
    """A container whose children are being visited."""

    def __init__(self, node: Any, key: object) -> None:
        self.node = node
        self.key = key
        self.nodes = 1
        self.children: Iterator[tuple[object, object]] = _children(node)


def _children(node: Any) -> Iterator[tuple[object, object]]:
    if isinstance(node, dict):
        yield from node.items()
        yield from vars(node).items() if type(node) is OrderedDict else ()
    else:
        yield from enumerate(node)


def _path(open_: list[_Open], key: object) -> str:
    keys = [part.key for part in open_[2:34]] + [key]
    return brief("/".join(str(part) for part in keys)) if len(open_) > 1 else "its root"
