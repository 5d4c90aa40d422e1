"""One file without a store: a full snapshot, always exact."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from . import codec
from .encode import encode_tensors
from .errors import FormatError, MissingKeyError
from .file import SNAPSHOT, FileReader, FileWriter, features_of
from .flat import Keys, read_as
from .messagepack import encode_values
from .restore import OpenChain
from .schema import Schema
from .snapshot import Meta, schema_digest
from .state import flatten
from .storage import Listed, LocalStorage, replace_file
from .store import Entry

if TYPE_CHECKING:
    from .view import Snapshot

__all__ = ["load_file", "safe_open", "save_file"]


def save_file(state: object, path: str | os.PathLike[str], *, threads: int | None = None) -> None:
    """Save a state as one file, bit for bit, in place of the file that `path` is or leads to.

    Raises `UnsupportedTypeError`, which names the key path, or `OSError`; `path` is then as it
    was, unless the last step failed: to make the new name durable in its folder.
    """
    flat = flatten(state)
    schema = Schema.parse(flat.schema)
    count = len(flat.arrays)
    meta = Meta(
        sequence=0,
        step=0,
        parent=None,
        schema=schema_digest(schema.raw),
        created=max(0, time.time_ns() // 1_000_000),
        values=encode_values(flat.values),
    )
    with replace_file(path) as sink:
        file = FileWriter(sink, SNAPSHOT, features_of(meta.encode(), schema.raw))
        encoded = encode_tensors(
            file,
            schema,
            flat.arrays,
            [None] * count,
            [codec.EXACT] * count,
            threads=codec.default_threads(threads),
        )
        meta = msgspec.structs.replace(meta, marks=int(not encoded.finite))
        file.finish(meta.encode(), encoded.headers, schema.raw)


def load_file(
    path: str | os.PathLike[str],
    *,
    keys: Keys | None = None,
    like: object = None,
    cast: bool = False,
    as_numpy: bool = False,
    types: Sequence[type] = (),
    threads: int | None = None,
) -> Any:
    """Return the state that a file holds; keys, like, cast, as_numpy and types as in `restore`.

    Raises `FormatError`, which names file, tensor and offset, or `OSError`.
    """
    read = read_as(keys, like, cast, as_numpy, types)
    with _open(path, threads) as chain:
        state = read(chain)
    if keys is not None and not state:
        raise MissingKeyError(f"{path}: no key path matches {keys!r}")
    return state


def safe_open(
    path: str | os.PathLike[str], *, as_numpy: bool = False, threads: int | None = None
) -> Snapshot:
    """Return a mapping from key paths to lazy tensors of a file. Raises as `load_file` does."""
    from .view import Snapshot

    return Snapshot(_open(path, threads), as_numpy)


def _open(path: str | os.PathLike[str], threads: int | None) -> OpenChain:
    place = Path(os.path.realpath(path))  # which, unlike `resolve`, bears a loop of links
    storage = LocalStorage(place.parent)
    with storage.open(place.name) as source:
        file = FileReader(source)
    stored = file.snapshots[0]
    alone = len(file.snapshots) == 1 and not stored.absent
    if file.kind != SNAPSHOT or not (alone and stored.meta.full) or stored.schema is None:
        raise FormatError(
            f"{path}: needs other files of its store; open the store with CheckpointManager"
        )
    blob = stored.schema
    if schema_digest(blob) != stored.meta.schema:
        raise FormatError(f"{path}: a schema under a false name")
    try:
        schema = Schema.parse(blob)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    entry = Entry.all_of(Listed(place.name, file.size, 0, 0), file)[0]
    return OpenChain(storage, [entry], lambda _: schema, threads=codec.default_threads(threads))
