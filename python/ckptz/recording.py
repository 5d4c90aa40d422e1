"""What a new snapshot records: its place on the line, its plain values, and its policy."""

from __future__ import annotations

import time

from .base import Base
from .errors import FormatError
from .policy import Policy
from .schema import Schema
from .snapshot import LARGEST_SEQUENCE, Meta, pack_values, schema_digest
from .store import Entry, Store

__all__ = ["new_meta"]


def new_meta(
    store: Store,
    policy: Policy,
    step: int,
    schema: Schema,
    packed: list[object],
    base: Base | None,
    previous: Entry | None,
) -> Meta:
    """Return what the next snapshot says of itself, but for its field `extra`.

    packed: its plain values. base: of a delta. previous: the snapshot that the line goes on from.
    """
    name = schema_digest(schema.raw)
    same = base is not None and base.entry.meta.schema == name
    values, changes = pack_values(packed, base.values if base is not None and same else None)
    last = store.last_sequence
    if last >= LARGEST_SEQUENCE:
        raise FormatError(f"{store.storage}: its sequence numbers are used up")
    ranges = [] if previous is None else list(previous.meta.rewound)
    ranges.append((0 if previous is None else previous.meta.sequence + 1, last))
    recorded = base is not None and _is_recorded(store, policy, base.entry)
    return Meta(
        sequence=last + 1,
        step=step,
        parent=None if base is None else base.entry.id,
        schema=name,
        created=max(0, time.time_ns() // 1_000_000),
        values=values,
        changes=changes,
        rewound=_joined(ranges),
        policy=None if recorded else [tuple(rule) for rule in policy.to_builtins()],
    )


def _is_recorded(store: Store, policy: Policy, entry: Entry) -> bool:
    try:
        return store.policy(entry) == policy
    except FormatError:  # a policy of some other version
        return False


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges as ones that rise and do not touch; empty ones are left out."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(r for r in ranges if r[0] <= r[1]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined
