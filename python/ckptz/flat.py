"""A flat dict of some leaves of a snapshot: what `restore(keys=...)` gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import state
from .keypath import glob
from .restore import OpenChain

__all__ = ["Keys", "flat_state"]

Keys = str | Sequence[str]


def flat_state(
    chain: OpenChain,
    keys: Keys,
    as_numpy: bool,
    progress: Callable[[int], None] | None = None,
) -> dict[str, object]:
    """Return the leaves whose key path matches one of the globs, in the state's order.

    Only their tensors are read. Leaves that share memory in the state share it here.
    """
    globs = [glob(pattern) for pattern in ([keys] if isinstance(keys, str) else keys)]
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
