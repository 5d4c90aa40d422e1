"""What snapshots record of loss, and when a user is told.

How often the line has gone on from something else than what was saved, how long tensors have been
left as they were, and what the user measured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Base
from .errors import warn
from .file import Entry
from .policy import Policy
from .schema import Schema
from .snapshot import Extra
from .state import FlatState

__all__ = [
    "check_budget",
    "check_metrics",
    "pack_extra",
    "stale_tensors",
    "warn_of_loss",
    "warn_unless_finite",
]

_PIECE = 1 << 20


def warn_of_loss(entry: Entry, exact: bool, budget: int) -> None:
    """Warn if a line has been through more lossy restores than the budget, this one included."""
    count = Extra.of(entry.meta).lossy_restores + (not exact)
    if count > budget:
        warn(
            f"step {entry.meta.step}: {count} lossy restores on its line since the last full "
            f"snapshot, the budget is {budget}; saving a full snapshot resets it"
        )


def stale_tensors(policy: Policy, base: Base, schema: Schema) -> dict[int, int]:
    """Return the tensors that a delta leaves as they were, by their rules, with their new ages.

    One with several key paths is saved as often as any of them asks for.
    """
    if all(rule.every == 1 for rule in policy.rules):
        return {}
    every: dict[int, int] = {}
    for path, kind, number in schema.leaves(attributes=True):
        if kind != "value":
            rule = policy.match(path)
            asked = 1 if rule is None else policy.rules[rule].every
            every[number] = min(every.get(number, asked), asked)
    ages = enumerate(base.ages_for(schema))
    return {n: age + 1 for n, age in ages if age is not None and age + 1 < every[n]}


def pack_extra(restores: int, ages: Mapping[int, int], metrics: Mapping[str, float]) -> list[Any]:
    """Return the field `extra` of a snapshot."""
    pairs: list[str | float] = []
    for name, number in metrics.items():
        pairs += [name, number]
    return Extra(restores, [n for pair in sorted(ages.items()) for n in pair], pairs).pack()


def warn_unless_finite(entry: Entry, before: Entry | None, flat: FlatState) -> None:
    """Warn if a snapshot is the first on its line with entries that are not finite."""
    if not entry.meta.marks & 1 or (before is not None and before.meta.marks & 1):
        return
    nodes = Schema.parse(flat.schema).tensors
    bad = [
        node.path
        for node, array in zip(nodes, flat.arrays, strict=True)
        if node.element_type != "bytes" and not _is_finite(array)
    ]
    where = f" in {bad[0]}" + (f" and {len(bad) - 1} more" if len(bad) > 1 else "") if bad else ""
    warn(
        f"step {entry.meta.step} holds entries that are not finite{where}; "
        "the last step without them is kept"
    )


def _is_finite(array: NDArray[Any]) -> bool:
    # A signalling NaN is an invalid operand of conversions, and a dtype may be one that NumPy
    # does not know.
    with contextlib.suppress(TypeError), np.errstate(invalid="ignore"):
        # In pieces: the answer for all at once would take a quarter of the tensor's memory.
        flat = array.reshape(-1)
        return all(np.isfinite(flat[at : at + _PIECE]).all() for at in range(0, flat.size, _PIECE))
    return True


def check_budget(budget: object) -> None:
    """Raise `ValueError` for what is no number of restores."""
    if type(budget) is not int or budget < 0:
        raise ValueError(f"loss_budget={budget!r} is not an integer from 0 up")


def check_metrics(metrics: Mapping[str, float] | None) -> dict[str, float]:
    """Return metrics as plain numbers. Raises `ValueError` naming what is none."""
    made: dict[str, float] = {}
    if metrics is not None and not isinstance(metrics, Mapping):
        raise ValueError(f"metrics={metrics!r:.80} is not a mapping from names to numbers")
    for name, number in (metrics or {}).items():
        if not isinstance(name, str):
            raise ValueError(f"metrics: the name {name!r} is not text")
        try:
            made[name] = float(number)
        except (TypeError, ValueError):
            raise ValueError(f"metrics: {name}={number!r} is not a number") from None
    return made
