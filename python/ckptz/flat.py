"""What a restore gives: the whole state, a flat dict of some leaves, or a template's structure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import state
from .keypath import glob
from .restore import OpenChain
from .template import Template

__all__ = ["Keys", "read_as"]

Keys = str | Sequence[str]


def read_as(
    keys: Keys | None,
    like: object,
    cast: bool,
    as_numpy: bool,
    types: Sequence[type],
    progress: Callable[[int], None] | None = None,
) -> Callable[[OpenChain], Any]:
    """Return how to read a snapshot that is open. Raises `ValueError`, `UnsupportedTypeError`."""
    if like is not None:
        if keys is not None:
            raise ValueError("like and keys do not go together")
        template = Template(like, cast=cast)
        return lambda chain: template.fill(chain, as_numpy, progress)
    if keys is not None:
        globs = _globs(keys)
        return lambda chain: _flat_state(chain, globs, as_numpy, progress)

    def whole(chain: OpenChain) -> object:
        arrays, values = chain.arrays(progress=progress), chain.plain_values()
        return state.unflatten(chain.schema, arrays, values, as_numpy=as_numpy, types=types)

    return whole


def _globs(keys: Keys) -> list[Callable[[str], bool]]:
    patterns = [keys] if isinstance(keys, str) else keys
    patterns = list(patterns) if isinstance(patterns, Iterable) else [patterns]
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise ValueError(f"keys={keys!r:.80}: {pattern!r:.80} is not text, a glob of key paths")
    return [glob(pattern) for pattern in patterns]


def _flat_state(
    chain: OpenChain,
    globs: Sequence[Callable[[str], bool]],
    as_numpy: bool,
    progress: Callable[[int], None] | None = None,
) -> dict[str, object]:
    """Return the leaves whose key path matches one of the globs, in the state's order.

    Only their tensors are read. Leaves that share memory in the state share it here.
    """
    wanted = [leaf for leaf in chain.schema.leaves() if any(match(leaf.path) for match in globs)]
    values = chain.plain_values()
    numbers = sorted({leaf.number for leaf in wanted if leaf.kind != "value"})
    nodes = chain.schema.tensors
    tensors = {
        number: state.tensor(nodes[number], array, as_numpy=as_numpy)
        for number, array in zip(numbers, chain.arrays(numbers, progress), strict=True)
    }
    return {
        leaf.path: values[leaf.number] if leaf.kind == "value" else tensors[leaf.number]
        for leaf in wanted
    }
