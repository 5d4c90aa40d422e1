"""One file without a store: a full snapshot, always exact."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import codec
from .encode import encode_tensors
from .errors import FormatError, MissingSnapshotError
from .file import SNAPSHOT, FileReader, FileWriter
from .flat import Keys, flat_state
from .messagepack import encode_values
from .restore import OpenChain
from .schema import Schema
from .snapshot import Meta, schema_digest
from .state import flatten, unflatten
from .storage import Listed, LocalStorage, replace_file
from .store import Entry
from .template import Template
from .view import Snapshot

__all__ = ["load_file", "safe_open", "save_file"]


def save_file(state: object, path: str | os.PathLike[str], *, threads: int | None = None) -> None:
    """Save a state as one file, bit for bit. What was at `path` is replaced in one step.

    Raises `UnsupportedTypeError`, which names the key path, or `OSError`; `path` is then as it
    was.
    """
    flat = flatten(state)
    schema = Schema.parse(flat.schema)
    count = len(flat.arrays)
    exact = codec.spec_of(None, False, False)
    with replace_file(path) as sink:
        file = FileWriter(sink, SNAPSHOT)
        encoded = encode_tensors(
            file,
            schema,
            flat.arrays,
            [None] * count,
            [exact] * count,
            threads=codec.default_threads(threads),
        )
        meta = Meta(
            sequence=0,
            step=0,
            parent=None,
            schema=schema_digest(schema.raw),
            created=time.time_ns() // 1_000_000,
            values=encode_values(flat.values),
            marks=int(not encoded.finite),
        )
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
    template = None if like is None else Template(like, cast=cast)
    if template is not None and keys is not None:
        raise ValueError("load_file: like and keys do not go together")
    with _open(path, threads) as chain:
        if template is not None:
            return template.fill(chain, as_numpy)
        if keys is None:
            arrays, values = chain.arrays(), chain.plain_values()
            return unflatten(chain.schema, arrays, values, as_numpy=as_numpy, types=types)
        state = flat_state(chain, keys, as_numpy)
    if not state:
        raise MissingSnapshotError(f"{path}: no key path matches {keys!r}")
    return state


def safe_open(
    path: str | os.PathLike[str], *, as_numpy: bool = False, threads: int | None = None
) -> Snapshot:
    """Return a mapping from key paths to lazy tensors of a file. Raises as `load_file` does."""
    return Snapshot(_open(path, threads), as_numpy)


def _open(path: str | os.PathLike[str], threads: int | None) -> OpenChain:
    place = Path(os.path.realpath(path))  # which, unlike `resolve`, bears a loop of links
    storage = LocalStorage(place.parent)
    with storage.open(place.name) as source:
        file = FileReader(source)
    stored = file.snapshots[0]
    if file.kind != SNAPSHOT or not stored.meta.full or stored.schema is None:
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
    entry = Entry(Listed(place.name, file.size, 0, 0), file.kind, stored, file.payload_bytes)
    return OpenChain(storage, [entry], lambda _: schema, threads=codec.default_threads(threads))
