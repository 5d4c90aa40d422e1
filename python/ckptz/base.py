"""The base of deltas: what a reader of the newest snapshot will have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from . import codec
from .encode import Predicted
from .errors import FormatError, MissingSnapshotError, warn
from .layers import identity, nbytes_of, shape_of, whole
from .restore import OpenChain
from .schema import Schema, TensorNode
from .snapshot import Extra
from .storage import Listed, is_shortage
from .store import Entry, Store

__all__ = ["Base", "Sources", "rebuild"]

Bytes = NDArray[np.uint8]


class Base(msgspec.Struct):
    """The reconstruction after a snapshot: what the next delta is taken against."""

    entry: Entry
    schema: Schema
    arrays: list[Bytes]
    values: list[Any]
    files: list[Listed]
    """Of the snapshots in the chain."""
    predictions: list[Predicted | None]
    """How the records of the newest one were predicted: the same will do for the next."""

    def ages_for(self, schema: Schema) -> list[int | None]:
        """For how many saves each tensor of another schema has been left as it was.

        None for what this base has not.
        """
        pairs = Extra.of(self.entry.meta).ages
        ages = dict(zip(pairs[::2], pairs[1::2], strict=True))
        known = {identity(node): ages.get(t, 0) for t, node in enumerate(self.schema.tensors)}
        return [known.get(identity(node)) for node in schema.tensors]

    def take(self, schema: Schema) -> list[Bytes | None]:
        """Let go of all arrays; return them in another schema's order, None for what it adds."""
        arrays, self.arrays = self.arrays, []
        if self.schema is schema or self.schema.raw == schema.raw:
            return list(arrays)
        known = dict(zip(map(identity, self.schema.tensors), arrays, strict=True))
        return [known.get(identity(node)) for node in schema.tensors]


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
                known = predictions_of(chain.schema, chain.headers)
                return Base(entry, chain.schema, arrays, chain.values, files, known), entry
        except (FormatError, MissingSnapshotError) as error:
            store.mark_damaged(entry, error)
            warn(f"going on from an older snapshot: {error}")
        except OSError as error:
            if is_shortage(error):
                raise
            warn(f"saving a full snapshot, for the one before cannot be read: {error}")
            return None, entry
    return None, None


def predictions_of(schema: Schema, headers: bytes) -> list[Predicted | None]:
    """Return how the records of a snapshot were predicted."""
    return codec.predictions(headers, [shape_of(node) for node in schema.tensors])


class Sources(msgspec.Struct, frozen=True):
    """What a snapshot is encoded from, a tensor each."""

    targets: list[NDArray[Any]]
    """The caller's memory where there is a base, else what `after` has: its copy."""
    bases: list[Bytes | None]
    after: list[Bytes]
    """The reconstructions, as soon as the snapshot has been encoded."""

    @classmethod
    def of(
        cls,
        arrays: Sequence[NDArray[Any]],
        schema: Schema,
        old: Base | None,
        coded_against: Base | None,
    ) -> Sources:
        """Copy what will be exact, into the memory of the `old` base where that fits.

        Both bases are spent. A tensor without a base in `coded_against` becomes the next one: it
        is copied before it is encoded, so that the two are equal even if the caller changes it.
        """
        rooms = old.take(schema) if old is not None else [None] * len(arrays)
        sources = cls([], [], [])
        for array, node, room in zip(arrays, schema.tensors, rooms, strict=True):
            base = None if coded_against is None else room
            after = base if base is not None else _copied(array, node, room)
            sources.targets.append(array if base is not None else after)
            sources.bases.append(base)
            sources.after.append(after)
        return sources


def _copied(array: NDArray[Any], node: TensorNode, room: Bytes | None) -> Bytes:
    """Copy an array's values as the format has them, into `room` if it is given."""
    if room is None:
        room = codec.empty_bytes(nbytes_of(node))
    if room.size:
        np.copyto(room.view(array.dtype.newbyteorder("=")).reshape(array.shape), array)
    return room
