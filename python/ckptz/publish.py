"""How the files of one snapshot get into a store: whole, in the right order, or not at all.

In a directory the writer holds a lock, and a rename makes a snapshot. In an object store nobody
holds one: there a small file, the commit, makes a snapshot of a part, and of two that have the
same sequence number the second is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
from types import TracebackType

import msgspec

from .errors import NetworkError, StoreLockedError
from .file import EXTRA, SNAPSHOT, FileWriter, Pieces, features_of, file_name
from .share import COMMIT, PART, Share, commit_name, part_name
from .snapshot import Meta
from .storage import Sink
from .store import Entry, Store

__all__ = ["Attempt", "attempt", "check_alone"]


class Attempt:
    """One snapshot on its way into a store. A context manager: what is not committed is undone."""

    kind = SNAPSHOT

    def __init__(self, store: Store, meta: Meta, size: int) -> None:
        """Begin the snapshot's file. size: what it will have, about."""
        self.meta = meta
        self._store = store
        self._storage = store.storage
        self._size = size
        self._undo = contextlib.ExitStack()
        self._residual: Sink | None = None
        self.sink = self._begin(None)

    def _begin(self, name: str | None) -> Sink:
        sink = self._storage.writer(name, self._size)
        self._undo.callback(sink.discard)
        return sink

    def residual(self, identity: bytes) -> Sink:
        """Begin the residual of the snapshot, which has this id."""
        self._residual = self._begin(file_name(self.meta.step, identity, residual=True))
        return self._residual

    def commit(self, identity: bytes, meta: bytes) -> Entry:
        """Make the snapshot durable and seen; return its entry. meta: as it is in its file."""
        if self._residual is not None:
            self._residual.sync()
        self.sink.sync()
        # The residual first: whoever sees the snapshot sees it whole.
        for sink in (self._residual, self.sink):
            if sink is not None:
                residual = sink is self._residual
                self._publish(sink, file_name(self.meta.step, identity, residual))
        return self._entry(identity)

    def _publish(self, sink: Sink, name: str) -> None:
        self._undo.callback(self._storage.remove, name)
        sink.rename(name)
        self._storage.sync()

    def _entry(self, identity: bytes) -> Entry:
        self._store.refresh(alone=True, all_files=False)
        entry = self._store.entries.get(identity)
        if entry is None:
            where = self._storage / file_name(self.meta.step, identity)
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(where))
        self._undo.pop_all()
        return entry

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()


class _SharedAttempt(Attempt):
    """An attempt where other writers may be at work: a part, and the commit that names it."""

    kind = PART

    def __init__(self, store: Store, meta: Meta, size: int) -> None:
        self._share = Share.new()
        super().__init__(store, msgspec.structs.replace(meta, part=self._share.of_part()), size)

    def _begin(self, name: str | None) -> Sink:
        return super()._begin(name or part_name(self.meta.step, self._share))

    def commit(self, identity: bytes, meta: bytes) -> Entry:
        store, sequence = self._store, self.meta.sequence
        names = [(self.sink, part_name(self.meta.step, self._share))]
        if self._residual is not None:
            names.append((self._residual, file_name(self.meta.step, identity, residual=True)))
        for wait in [self._storage.begin(sink.sync) for sink, _ in names]:
            wait()
        for sink, name in names:
            self._publish(sink, name)
        # A commit of this number may have been deleted again since.
        store.refresh(alone=True)
        parent = self.meta.parent
        if store.last_sequence >= sequence or (parent and parent not in store.entries):
            raise _refused(store)
        data = self._commit_file(identity, names[0][1], meta)
        store.written = None
        # Until there is an answer the commit may be there, and then needs its part.
        done, self._undo = self._undo, contextlib.ExitStack()
        if not self._storage.commit(commit_name(sequence), data):
            self._undo = done
            raise _refused(store)
        entry = self._entry(identity)
        store.written = sequence
        return entry

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, NetworkError):
            # Who does not answer now would not be asked to delete with more success.
            self._undo.pop_all()
        with contextlib.suppress(OSError):
            self._undo.close()

    def _commit_file(self, identity: bytes, name: str, meta: bytes) -> bytes:
        share = self._share._replace(digest=identity, name=name)
        own = msgspec.structs.replace(
            Meta.decode(meta), values=None, changes=[], part=share.of_commit()
        )
        pieces, raw = Pieces(), own.encode()
        features = features_of(raw) | EXTRA * bool(own.extra)
        FileWriter(pieces, COMMIT, features).finish(raw, b"", None)
        return b"".join(pieces)


def attempt(store: Store, meta: Meta, size: int) -> Attempt:
    """Begin to write a snapshot, in the way that suits the store."""
    return (_SharedAttempt if store.storage.shared else Attempt)(store, meta, size)


def check_alone(store: Store) -> None:
    """Raise `StoreLockedError` if another writer has committed since this one did.

    Once: who saves again goes on from there.
    """
    if store.written is not None and store.last_sequence > store.written:
        raise _refused(store)


def _refused(store: Store) -> StoreLockedError:
    store.written = None
    store.storage.unlock()
    return StoreLockedError(
        f"{store.storage}: another writer has committed or deleted a snapshot meanwhile, and "
        "this one was not saved; nothing is lost, but only one may write"
    )
