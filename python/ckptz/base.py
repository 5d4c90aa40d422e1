"""The base of deltas: what a reader of the newest snapshot will have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import codec
from .errors import FormatError, MissingSnapshotError, warn
from .layers import Identity, identity, nbytes_of, whole
from .restore import OpenChain
from .schema import Schema, TensorNode
from .storage import Listed, is_shortage
from .store import Entry, Store

__all__ = ["Base", "next_base", "rebuild"]

Bytes = NDArray[np.uint8]


@dataclass(slots=True)
class Base:
    """The reconstruction after a snapshot: what the next delta is taken against."""

    entry: Entry
    schema: Schema
    arrays: list[Bytes]
    values: list[Any]
    files: list[Listed]
    """Of the snapshots in the chain."""

    def arrays_for(self, schema: Schema) -> list[Bytes | None]:
        """Arrays in the order of another schema, None where there is none such."""
        if self.schema is schema or self.schema.raw == schema.raw:
            return list(self.arrays)
        known = self._by_identity()
        return [known.get(identity(node)) for node in schema.tensors]

    def take(self, schema: Schema) -> list[Bytes | None]:
        """Arrays in the order of another schema, let go of by this base, and of all others."""
        arrays = self.arrays_for(schema)
        self.arrays = []
        return arrays

    def _by_identity(self) -> dict[Identity, Bytes]:
        return dict(zip(map(identity, self.schema.tensors), self.arrays, strict=True))


def rebuild(store: Store, tip: Entry, threads: int) -> tuple[Base | None, Entry | None]:
    """Restore the base from the newest good snapshot on a line, without its residual.

    Returns the base, and the snapshot to go on from. Where the disk does not give that to read,
    which may pass, there is no base, but the line goes on from it all the same.
    """
    while (entry := next(iter(store.restorable(tip)), None)) is not None:
        try:
            with OpenChain.of_store(store, entry, threads=threads) as chain:
                nodes = chain.schema.tensors
                arrays = [codec.empty_bytes(nbytes_of(node)) for node in nodes]
                chain.read([whole(t, nodes[t], array) for t, array in enumerate(arrays)])
                files = [layer.listed for layer in chain.layers]
                return Base(entry, chain.schema, arrays, chain.values, files), entry
        except (FormatError, MissingSnapshotError) as error:
            store.mark_damaged(entry, error)
            warn(f"going on from an older snapshot: {error}")
        except OSError as error:
            if is_shortage(error):
                raise
            warn(f"saving a full snapshot, for the one before cannot be read: {error}")
            return None, entry
    return None, None


def next_base(
    arrays: Sequence[NDArray[Any]],
    schema: Schema,
    values: list[Any],
    entry: Entry,
    old: Base | None,
    coded_against: Base | None,
) -> Base:
    """Make the base after a snapshot, in the memory of the one before where that fits.

    coded_against: the base of the snapshot's delta, which already is the new one; None where it
    was a full one, which is exact.
    """
    rooms = old.take(schema) if old is not None else [None] * len(arrays)
    made = []
    for array, node, room in zip(arrays, schema.tensors, rooms, strict=True):
        if coded_against is None or room is None:
            room = _copied(array, node, room)
        made.append(room)
    before = [] if coded_against is None else coded_against.files
    return Base(entry, schema, made, values, [*before, entry.listed])


def _copied(array: NDArray[Any], node: TensorNode, room: Bytes | None) -> Bytes:
    """Copy an array's values as the format has them, into `room` if it is given."""
    if room is None:
        room = codec.empty_bytes(nbytes_of(node))
    if room.size:
        np.copyto(room.view(array.dtype.newbyteorder("=")).reshape(array.shape), array)
    return room
