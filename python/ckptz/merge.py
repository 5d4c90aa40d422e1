"""Merging: the layers of several snapshots, unchanged, into one file (format.md, section 11).

A merged file is written from the bytes of its sources: what is restored stays the same, and so do
the ids. Snapshots that are no steps any more are only layers there, and of these what no step
needs is left out.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Collection, Sequence

import numpy as np

from . import codec
from .errors import CkptzError, FormatError
from .file import MERGED, PARTS, SNAPSHOT, Entry, FileWriter, features_of, merged_name
from .layers import LayerFiles, Numbering, snapshot_of
from .metadata import Stored, pack_metadata, pack_snapshot
from .store import Store

__all__ = ["check_mergeable", "files_to_merge", "merge_files"]

# Sources open at once; further ones are opened whenever they are read.
_MOST_OPEN = 64
# Bytes that are put together before they are written.
_OUT_BYTES = 4 << 20
# Pieces that are taken from the core at once.
_PIECES = 4096


def check_mergeable(store: Store) -> None:
    """Raise `CkptzError` for an object store.

    A merged file takes the place of commits, which are what writers collide with there.
    """
    if store.storage.shared:
        raise CkptzError(
            f"{store.storage}: snapshots in an object store cannot be merged; "
            "merge the store in a directory and copy it"
        )


def files_to_merge(chain: Sequence[Entry], most: int) -> list[Entry]:
    """Return layers at the end of a chain to be merged so that it is in at most `most` files.

    None while it is. Those files are merged, from the last back, none of which is larger than all
    after it: so each byte is copied about as often as the number of deltas can be halved. The full
    snapshot is left alone.
    """
    sizes: dict[object, int] = {}
    for layer in chain[1:]:
        if layer.listed != chain[0].listed:
            sizes[layer.listed] = layer.size
    if len(sizes) + 1 <= most:
        return []
    files = list(sizes)
    first = min(
        number
        for number, one in enumerate(files)
        if number == len(files) - 1 or sizes[one] <= sum(sizes[f] for f in files[number + 1 :])
    )
    first = min(first, max(0, most - 2))
    chosen = files[first:]
    return [layer for layer in chain if layer.listed in chosen] if len(chosen) > 1 else []


def merge_files(
    store: Store, entries: Sequence[Entry], admits: Callable[[Sequence[Entry], int], bool]
) -> str | None:
    """Write a file with all that is needed of the files of some snapshots; return its name.

    None where they are in one file already, and nothing else, or where `admits` says no to them in
    a file of so many bytes. The sources stay: what they hold is then there twice. Raises
    `FormatError` for damaged ones, or `OSError`; nothing has changed then.
    """
    listed = {entry.listed for entry in entries}
    kept = store.entries.keys() - store.hidden
    needed = store.closure(kept)
    found = [e for e in store.entries.values() if e.listed in listed and e.id in needed]
    chosen = sorted(found, key=lambda e: e.meta.sequence)
    whole = len({entry.listed for entry in chosen}) == 1 and chosen[0].sharing == len(chosen)
    if len(chosen) < 2 or whole:
        return None
    numbers = [entry.meta.sequence for entry in chosen]
    if len(set(numbers)) < len(numbers):
        raise FormatError(f"{store.storage}: two snapshots have the same sequence number")
    absent = _useless(store, chosen, kept)
    with contextlib.ExitStack() as undo:
        files = LayerFiles(store.storage, briefly=len(listed) > _MOST_OPEN)
        undo.callback(files.close)
        files.open(chosen)
        for reader in files.readers:
            # Damage must not get a good checksum.
            reader.check_payload()
        sink = store.storage.writer()
        undo.callback(sink.discard)
        features = functools.reduce(operator.or_, (reader.features for reader in files.readers))
        features |= features_of(*{store.schema(entry).raw for entry in chosen})
        file = FileWriter(sink, SNAPSHOT, MERGED | features & ~PARTS)
        _copy_payload(store, files, chosen, absent, file)
        metadata = _metadata(store, chosen, files.stored, absent)
        if not admits(chosen, file.finish_with(metadata)):
            return None
        sink.sync()
        name = merged_name(chosen[-1].meta.step, metadata)
        undone = undo.enter_context(contextlib.ExitStack())
        undone.callback(store.storage.remove, name)
        sink.rename(name)
        store.storage.sync()
        undone.pop_all()
    return name


def _useless(store: Store, chosen: Sequence[Entry], kept: Collection[bytes]) -> list[list[int]]:
    """Return for each snapshot the records whose chunks no kept snapshot needs."""
    if all(entry.id in kept for entry in chosen):
        return [[] for _ in chosen]
    needed = store.closure(kept)
    # Whatever is on top of one of the chosen may need it.
    above: set[bytes] = set()
    snapshots = []
    for entry in sorted(store.entries.values(), key=lambda e: e.meta.sequence):
        if entry.id in needed and (entry in chosen or entry.meta.parent in above):
            above.add(entry.id)
            snapshots.append(entry)
    numbering = Numbering()
    places = {entry.id: number for number, entry in enumerate(snapshots)}
    described = []
    for entry in snapshots:
        stored = store.stored(entry)
        described.append(snapshot_of(stored, numbering.members(store.schema(entry))))
    try:
        found = codec.useless_records(
            numbering.shapes(),
            described,
            [places.get(entry.meta.parent or b"") for entry in snapshots],
            [entry.id in kept for entry in snapshots],
        )
    except codec.RecordError as error:
        raise FormatError(f"{store.storage}: {error.args[0]}") from None
    return [found[places[entry.id]] for entry in chosen]


def _copy_payload(
    store: Store,
    files: LayerFiles,
    chosen: Sequence[Entry],
    absent: Sequence[Sequence[int]],
    file: FileWriter,
) -> None:
    numbering = Numbering()
    for entry in chosen:  # tensors in the order in which the new file's schemas name them
        numbering.members(store.schema(entry))
    sources = files.headers(numbering, store.schema, len(files.readers))
    try:
        merge = codec.Merge(numbering.shapes(), sources, files.path, [list(a) for a in absent])
    except codec.RecordError as error:
        raise FormatError(f"{store.storage}: {error.args[0]}") from None
    waiting: list[codec.Bytes] = []
    at = size = 0
    while pieces := merge.pieces(at, _PIECES):
        at += len(pieces)
        for number, offset, length in pieces:
            for start in range(0, length, _OUT_BYTES):
                part = min(_OUT_BYTES, length - start)
                waiting.append(files.readers[number].read(offset + start, part))
                size += part
                if size >= _OUT_BYTES:
                    file.write_payload(np.concatenate(waiting))
                    waiting, size = [], 0
    if waiting:
        file.write_payload(np.concatenate(waiting))


def _metadata(
    store: Store,
    chosen: Sequence[Entry],
    stored: Sequence[Stored],
    absent: Sequence[Sequence[int]],
) -> bytes:
    """Return the new file's metadata; every schema that it names is in it."""
    packed = []
    held: set[bytes] = set()
    for entry, one, left in zip(chosen, stored, absent, strict=True):
        schema = one.schema
        if schema is None and one.meta.schema not in held:
            schema = store.schema(entry).raw
        held.add(one.meta.schema)
        hidden = entry.id in store.hidden
        packed.append(pack_snapshot(one.raw_meta, one.headers, schema, hidden, left))
    return pack_metadata(packed)
