"""Checks the state that a pickle built: only what can be stored, and only as much as it seems."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FormatError, UnsupportedTypeError
from .base import brief

__all__ = ["check_tree"]

_MOST_NODES = 1 << 26  # the ckptz format's limit
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_DICTS = (dict, OrderedDict, defaultdict, Counter)


def check_tree(path: Path, state: object) -> None:
    """Raise UnsupportedTypeError for a leaf that is no value, FormatError for a state without end.

    A pickle may use a value in many places, so that a few bytes stand for a tree of any size, or
    put it inside itself. Each value is visited once, without recursion.
    """
    counts: dict[int, int] = {}  # nodes below a container; 0 while it is open
    open_: list[_Open] = []
    node: Any = state
    key: object = None
    child: tuple[object, Any] | None = None
    while True:
        size = 1
        if type(node) in _DICTS or type(node) in (list, tuple):
            size = counts.get(id(node), -1)
            if size == 0:
                raise FormatError(f"{path}: the state at {_path(open_, key)} contains itself")
            if size < 0:
                counts[id(node)] = 0
                open_.append(_Open(node, key))
        elif not isinstance(node, (np.ndarray, np.generic, *_PLAIN)):
            name = f"`{node.name}`" if hasattr(node, "name") else f"a {type(node).__name__}"
            where = _path(open_, key)
            raise UnsupportedTypeError(
                f"{path}: the state at {where} holds {name}, which is no value"
            )
        if size > 0 and open_:
            open_[-1].nodes += size
        while open_ and (child := next(open_[-1].children, None)) is None:
            done = open_.pop()
            if done.nodes > _MOST_NODES:
                raise FormatError(f"{path}: the state has more than {_MOST_NODES} values")
            counts[id(done.node)] = done.nodes
            if open_:
                open_[-1].nodes += done.nodes
        if child is None or not open_:
            return
        key, node = child


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
    keys = [part.key for part in open_[1:]] + [key]
    return brief("/".join(str(part) for part in keys[:32])) if open_ else "its root"
