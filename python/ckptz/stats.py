"""What a snapshot takes, and what its record headers say."""

from __future__ import annotations

import msgspec

from . import codec
from .errors import FormatError
from .layers import nbytes_of, shape_of
from .metadata import Stored
from .reads import bytes_of, files_read
from .snapshot import Extra
from .store import Entry, Store

__all__ = ["SnapshotStats", "TensorStats", "snapshot_stats"]


class TensorStats(msgspec.Struct, frozen=True):
    """One tensor of a snapshot."""

    dtype: str
    shape: tuple[int, ...]
    kind: str
    """Same, link, value, ordered, ordered non-negative, classes, difference or bytes."""
    base: str
    """What it is coded against: zero, previous, predicted."""
    coding: str | None
    """How its symbols are coded: constant, plain, pairs, mask, tokens, fixed; None: no symbols."""
    lossy: bool
    error: float
    """|restored - saved| / |saved - previous reconstruction|, as the writer measured it."""
    raw_bytes: int
    bytes: int
    """Of the record, header included."""
    header_bytes: int
    """Of `bytes`: the record header, tables included."""
    table_bytes: int
    """Of `bytes`: representatives and code tables."""
    link: str | None
    """Key path of the tensor that this one is a link to."""
    age: int
    """Saves for which it has been left as it was (`Rule(every=..)`)."""
    siblings: tuple[str, ...] = ()
    """Key paths of the tensors that a predicted base is computed from, beside its own past."""

    @property
    def ratio(self) -> float:
        """Original bytes for each stored one."""
        return self.raw_bytes / max(1, self.bytes)


class SnapshotStats(msgspec.Struct, frozen=True):
    """One snapshot."""

    step: int
    id: str
    kind: str
    """full or delta."""
    parent: int | None
    """Step of the snapshot that it is a delta against; None: of none."""
    created: float
    """When it was saved: seconds since 1970-01-01 UTC."""
    exact: bool
    """Whether it is restored bit for bit as it was saved: with a residual, or without loss."""
    finite: bool
    """Whether every entry of every float tensor is finite."""
    raw_bytes: int
    """Of all tensors."""
    bytes: int
    """Of its file, or its share of one that holds several."""
    residual_bytes: int
    """Of its residual, 0 without one."""
    error: float
    """The largest error of its tensors, before the residual."""
    lossy_restores: int
    """Restores on its line, since its last full snapshot, that gave not what had been saved."""
    metrics: dict[str, float]
    """As given to `save`."""
    pinned: bool
    restore_files: int
    """Files that a restore reads."""
    restore_bytes: int
    """Bytes of those files."""
    tensors: dict[str, TensorStats]

    @property
    def ratio(self) -> float:
        """Original bytes for each stored one, the residual not counted."""
        return self.raw_bytes / max(1, self.bytes)


def snapshot_stats(store: Store, entry: Entry) -> SnapshotStats:
    """Return the statistics of a snapshot. Raises `FormatError`, `MissingSnapshotError`."""
    chain = store.chain(entry)
    stored = store.stored(entry)
    tensors = _tensor_stats(store, entry, stored, chain)
    size = entry.size
    if entry.sharing > 1:
        here = [t for number, t in enumerate(tensors.values()) if number not in stored.absent]
        size = sum(t.bytes - t.header_bytes for t in here) + stored.size
    residual = store.residuals.get(entry.id)
    # A record that is not lossy is exact whatever its base, but for a link to a lossy one.
    exact = residual is not None or not any(t.lossy or t.age for t in tensors.values())
    read = files_read(store, entry)
    extra = Extra.of(stored.meta)
    return SnapshotStats(
        step=entry.meta.step,
        id=entry.id.hex(),
        kind="full" if entry.meta.full else "delta",
        parent=None if entry.meta.full else chain[-2].meta.step,
        created=entry.meta.created / 1000,
        exact=exact,
        finite=not entry.meta.marks & 1,
        raw_bytes=sum(t.raw_bytes for t in tensors.values()),
        bytes=size,
        residual_bytes=0 if residual is None else residual.size,
        error=max((t.error for t in tensors.values()), default=0.0),
        lossy_restores=extra.lossy_restores,
        metrics=extra.measured(),
        pinned=entry.id in store.pinned,
        restore_files=len(read),
        restore_bytes=bytes_of(read),
        tensors=tensors,
    )


def _tensor_stats(
    store: Store, entry: Entry, stored: Stored, chain: list[Entry]
) -> dict[str, TensorStats]:
    nodes = store.schema(entry, chain).tensors
    try:
        shapes = [shape_of(node) for node in nodes]
        described = codec.describe(stored.headers, shapes)
    except codec.RecordError as error:
        raise FormatError(f"{store.storage / entry.name}: {error.args[0]}") from None
    tensors: dict[str, TensorStats] = {}
    extra = Extra.of(stored.meta)
    ages = dict(zip(extra.ages[::2], extra.ages[1::2], strict=True))
    for number, (node, record) in enumerate(zip(nodes, described, strict=True)):
        source = record["source"]
        tensors[node.path] = TensorStats(
            dtype=node.dtype,
            shape=node.shape,
            kind=record["kind"],
            base=record["base"],
            coding=record["coding"],
            lossy=record["lossy"],
            error=record["error"],
            raw_bytes=nbytes_of(node),
            bytes=record["header_bytes"] + record["payload_bytes"],
            header_bytes=record["header_bytes"],
            table_bytes=record["table_bytes"],
            link=None if source is None else nodes[source].path,
            age=ages.get(number, 0),
            siblings=tuple(nodes[number].path for number in record["siblings"]),
        )
    return tensors
