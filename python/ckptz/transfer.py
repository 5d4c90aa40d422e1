"""A store copied, file by file, to another place: only what is missing, and checked on both sides.

What is seen last is copied last: a copy that was interrupted opens, and is gone on with.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from . import codec
from .errors import ChecksumError, CkptzError, FormatError, StoreLockedError, some
from .file import PAYLOAD_AT, RESIDUAL, FileReader
from .share import COMMIT, PART
from .storage import Bytes, Storage
from .store import Entry, Store

__all__ = ["Transfer", "copy_store"]

Progress = Callable[[int], None]

_FILES = 4  # at once
_PIECE = 8 << 20
_AHEAD = 2  # pieces of a file
# A running writer may have saved meanwhile; but who can save faster than this copies?
_ROUNDS = 5


@dataclass(slots=True)
class Transfer:
    """What copying a store did."""

    files: int = 0
    """Files copied."""
    bytes: int = 0
    there: int = 0
    """Files that were there already."""
    problems: dict[str, str] = field(default_factory=dict)
    """Files that were left out, for they are damaged, and why."""


def copy_store(source: Storage, destination: Storage, progress: Progress | None = None) -> Transfer:
    """Copy a store; the destination may hold some of it, or newer snapshots of the same run.

    Files are never replaced, damaged ones are left out and reported. Raises `StoreLockedError`
    where another writer is at work, `CkptzError` where the destination holds another run,
    `ChecksumError` where it does not give back what was written, `OSError`.
    """
    old, new, done = Store(source), Store(destination), Transfer()
    old.refresh()
    destination.create()
    destination.lock()
    try:
        destination.remove_unfinished()
        new.refresh()
        _check_same_run(old, new)
        _copy_marks(old, new, done)
        done.there += len(_wanted(old)) - len(_missing(old, new, done))
        for _ in range(_ROUNDS):
            missing = _missing(old, new, done)
            if not missing:
                break
            _copy_all(missing, old, new, done, progress or (lambda _: None))
            old.refresh()
            new.refresh()
        _finish(old, new, done)
    finally:
        destination.unlock()
    return done


def _check_same_run(old: Store, new: Store) -> None:
    there = {entry.meta.sequence: entry.id for entry in new.entries.values()}
    for entry in old.entries.values():
        other = there.get(entry.meta.sequence, entry.id)
        if other not in old.entries and entry.id not in new.entries:
            raise CkptzError(
                f"{new.storage}: holds another run than {old.storage}: its snapshot number "
                f"{entry.meta.sequence} is another one; choose an empty place"
            )


def _wanted(store: Store) -> list[Entry]:
    """Return the files of a store, but for residuals that a writer could not delete."""
    old = _old_residuals(store)
    return [entry for entry in store.catalog.by_file().values() if entry.name not in old]


def _old_residuals(store: Store) -> set[str]:
    """Return the names of residuals that are of no use, unless there is no snapshot yet."""
    newest = store.newest()
    return set() if newest is None else set(store.residual_names({newest.id, *store.pinned}))


def _missing(old: Store, new: Store, done: Transfer) -> list[Entry]:
    """Return what to copy, in order: first what nobody sees yet."""
    done.problems.update(old.problems)
    there = {one.name: one.size for one in new.storage.names()}
    found = []
    for entry in _wanted(old):
        size = there.get(entry.name)
        if size is None and entry.name not in done.problems:
            found.append(entry)
        elif size not in (None, entry.listed.size):
            done.problems[entry.name] = (
                f"{new.storage / entry.name}: has {size} bytes, not {entry.listed.size}; delete it "
                "to have it copied again"
            )
    return sorted(found, key=lambda e: (e.kind not in (PART, RESIDUAL), e.meta.sequence))


def _copy_marks(old: Store, new: Store, done: Transfer) -> None:
    """Copy marks, before what they are of: a dropped step is then never seen."""
    there = {one.name for one in new.storage.names()}
    for listed in old.catalog.marks:
        if listed.name in there:
            done.there += 1
            continue
        with contextlib.suppress(FileNotFoundError), old.storage.open(listed.name) as file:
            new.storage.commit(listed.name, file.read(0, file.size).tobytes())
            done.files += 1
            done.bytes += listed.size


def _copy_all(
    missing: list[Entry], old: Store, new: Store, done: Transfer, progress: Progress
) -> None:
    last = [entry for entry in missing if entry.kind == COMMIT]
    first = [entry for entry in missing if entry.kind != COMMIT]
    with ThreadPoolExecutor(_FILES, "ckptz-copy") as pool:
        copies = [(e, pool.submit(_copy, e, old.storage, new.storage, progress)) for e in first]
        try:
            for entry, copy in copies:
                _count(entry, copy.result, done)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    damaged = {part.id for part in first if part.name in done.problems}
    for entry in last:
        if entry.share is not None and entry.share.digest in damaged:
            done.problems[entry.name] = f"{old.storage / entry.name}: its part is damaged"
            continue
        _count(entry, partial(_copy_commit, entry, old.storage, new.storage), done)


def _count(entry: Entry, copy: Callable[[], None], done: Transfer) -> None:
    try:
        copy()
    except FileNotFoundError:
        return  # deleted meanwhile, as a residual is
    except _DamagedError as error:
        done.problems[entry.name] = str(error)
        return
    done.files += 1
    done.bytes += entry.listed.size


class _DamagedError(Exception):
    """A file of the source is damaged."""


def _copy(entry: Entry, source: Storage, destination: Storage, progress: Progress) -> None:
    with source.open(entry.name) as file:
        try:
            reader = FileReader(file)
        except FormatError as error:
            raise _DamagedError(error) from error
        sink = destination.writer(entry.name, reader.size)
        try:
            crc = codec.Crc()
            end = PAYLOAD_AT + reader.payload_bytes
            for at, piece in _pieces(reader, source):
                crc.update(piece[max(0, PAYLOAD_AT - at) : max(0, end - at)])
                sink.write(piece)
                progress(piece.size)
            if crc.value != reader.payload_crc:
                raise _DamagedError(f"{reader.path}: the payload does not match its checksum")
            sink.sync()
            sink.rename(entry.name)
            destination.sync()
        finally:
            sink.discard()
    _check(entry, destination)


def _pieces(reader: FileReader, source: Storage) -> Iterator[tuple[int, Bytes]]:
    waiting: deque[tuple[int, Callable[[], Bytes]]] = deque()
    for at in range(0, reader.size, _PIECE):
        waiting.append((at, source.begin(partial(reader.source.read, at, _PIECE))))
        if len(waiting) > _AHEAD:
            start, read = waiting.popleft()
            yield start, read()
    for start, read in waiting:
        yield start, read()


def _check(entry: Entry, destination: Storage) -> None:
    """Read a copy back; delete one that is not as it was written."""
    try:
        with destination.open(entry.name) as copy:
            reader = FileReader(copy)
            reader.check_payload()
            entry.check(reader)
    except FormatError as error:
        destination.remove(entry.name)
        raise ChecksumError(f"{error}; the copy has been deleted again") from error


def _copy_commit(entry: Entry, source: Storage, destination: Storage) -> None:
    with source.open(entry.name) as file:
        data = file.read(0, file.size).tobytes()
    if not destination.commit(entry.name, data):
        raise StoreLockedError(
            f"{destination / entry.name}: another writer has committed this sequence number"
        )


def _finish(old: Store, new: Store, done: Transfer) -> None:
    """Delete residuals of all but the newest snapshot; see that all steps can be restored."""
    newest = new.newest()
    for name in _old_residuals(new):
        with contextlib.suppress(OSError):
            new.storage.remove(name)
    lost = set(old.steps()) - set(new.steps())
    if lost and not done.problems and newest is not None and newest.id in old.entries:
        raise CkptzError(
            f"{new.storage}: this copy cannot restore steps that the original can: "
            f"{some(sorted(lost))}"
        )
