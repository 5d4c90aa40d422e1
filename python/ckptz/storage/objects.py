"""A prefix of an object store (S3, GCS, Azure) that holds a store.

An object is seen when it is whole, and there are no locks: what two writers do at once is decided
by `commit`, a put that fails if the name is there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..closing import Closing
from ..errors import NetworkError, StoreLockedError
from .base import NO_FILES, Bytes, Listed
from .network import Network

__all__ = ["ObjectReader", "ObjectStorage", "ObjectWriter"]

_T = TypeVar("_T")

# Requests at once: of reads, and of the parts of one file that is written.
_READS = 16
_PARTS = 3
# Bytes of a part, unless the file is so large that it would have more of them than S3 allows.
_PART = 8 << 20
_MOST_PARTS = 9000
# The end of a file is read with its metadata, which are asked for in pieces.
_TAIL = 1 << 16


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """Return the threads that all stores of a process share; a forked child has none of them."""
    return ThreadPoolExecutor(_READS, "ckptz-network")


class ObjectStorage:
    """The objects under a URL, without those in folders below it."""

    shared = True

    def __init__(self, url: str) -> None:
        """Name the place; nothing is sent yet. Raises `ImportError`, `ValueError`."""
        self.url = url.rstrip("/")
        self.network = Network(self.url)
        self.objects: Any = self.network.connect()
        self.links: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._writer = 0

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> str:
        """URL of an object, for messages."""
        return f"{self.url}/{name}"

    def exists(self) -> bool:
        """Whether there are objects."""
        return bool(self.names())

    def create(self) -> None:
        """Do nothing: objects need no place made for them."""

    def names(self, known: Mapping[str, Listed] = NO_FILES) -> list[Listed]:
        """List the objects, in order of their names; known: that tells all of them anyway."""
        obstore = self.network.obstore
        found = self.network.request(
            "list the objects", self.url, lambda: obstore.list_with_delimiter(self.objects)
        )
        listed = []
        for one in found["objects"]:
            changed = int(one["last_modified"].timestamp() * 1e9)
            listed.append(Listed(one["path"], one["size"], changed, one["e_tag"] or ""))
        self._sizes = {one.name: one.size for one in listed}
        return sorted(listed)

    def open(self, name: str) -> ObjectReader:
        """Open an object for reading. One that is gone may be found so only by the first read."""
        size = self._sizes.get(name)
        return ObjectReader(self, name, self.size_of(name) if size is None else size)

    def size_of(self, name: str) -> int:
        """Ask for the size of an object. Raises `FileNotFoundError`."""
        head = self.network.obstore.head
        found = self.network.request("find", self / name, lambda: head(self.objects, name))
        return int(found["size"])

    def writer(self, name: str | None = None, size: int = 0) -> ObjectWriter:
        """Begin a new object of this name."""
        if name is None:
            raise ValueError("an object must be named before it is written")
        return ObjectWriter(self, name, max(_PART, size // _MOST_PARTS + 1))

    def commit(self, name: str, data: bytes) -> bool:
        """Make an object, unless there is one. Returns whether it holds these very bytes.

        Where the answer is a refusal, or lost, the object that is there tells whose it is.
        """
        put, get = self.network.obstore.put, self.network.obstore.get
        request, where = self.network.request, self / name
        end = time.monotonic() + self.network.deadline
        while True:
            try:
                request(
                    "commit",
                    where,
                    lambda: put(self.objects, name, data, mode="create"),
                    once=True,
                )
                return True
            except (FileExistsError, NetworkError) as error:
                failed: OSError = error
            try:
                there = request("read", where, lambda: get(self.objects, name).bytes(), once=True)
                return bytes(there) == data
            except FileNotFoundError:
                pass  # the put was lost, or two at once were both refused
            except NetworkError as error:
                failed = error if isinstance(failed, FileExistsError) else failed
            if time.monotonic() > end:
                raise failed
            time.sleep(0.1)

    def sync(self) -> None:
        """Do nothing: an answer means that it lasts."""

    def remove(self, name: str) -> None:
        """Delete an object; one that is gone already is fine."""
        delete = self.network.obstore.delete
        with contextlib.suppress(FileNotFoundError):
            self.network.request("delete", self / name, lambda: delete(self.objects, name))

    def begin(self, work: Callable[[], _T]) -> Callable[[], _T]:
        """Begin a request in another thread; the result waits for its end."""
        return _pool(os.getpid()).submit(work).result

    def lock(self) -> None:
        """Take note that this process writes; who else does is found by `commit`."""
        if self._writer not in (0, os.getpid()):
            raise StoreLockedError(f"{self.url}: the process that this one was forked from writes")
        self._writer = os.getpid()

    @property
    def locked(self) -> bool:
        """Whether this process writes."""
        return self._writer == os.getpid()

    def unlock(self) -> None:
        """Take note that this process writes no more."""
        self._writer = 0

    def remove_unfinished(self) -> None:
        """Do nothing: unfinished uploads have no names, and may be another writer's."""

    def remove_own_unfinished(self) -> None:
        """Do nothing: what a failed save has left is deleted when a later commit has shown it."""


class ObjectReader(Closing):
    """An object, read by ranges."""

    def __init__(self, storage: ObjectStorage, name: str, size: int) -> None:
        """Name the object, which has so many bytes."""
        self.path: Path | str = storage / name
        self.size = size
        self._storage = storage
        self._name = name
        # The beginning of a small file and the end of any are asked for one after another.
        self._kept: tuple[int, Bytes] = (0, np.empty(0, np.uint8))

    def read(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset`, fewer where the object ends."""
        end = min(offset + length, self.size)
        if end <= offset:
            # Also tells whether the object is there at all.
            if self.size == 0:
                self._storage.size_of(self._name)
            return np.empty(0, np.uint8)
        start, kept = self._kept
        if start <= offset and end <= start + kept.size:
            return kept[offset - start : end - start]
        if self.size <= _TAIL:
            self._kept = (0, self._range(0, self.size))
            return self._kept[1][offset:end]
        return self._range(offset, end)

    def _range(self, start: int, end: int) -> Bytes:
        network, name = self._storage.network, self._name
        get = network.obstore.get_range
        return network.request(
            "read",
            str(self.path),
            lambda: np.frombuffer(get(self._storage.objects, name, start=start, end=end), np.uint8),
        )

    def payload(self, start: int) -> None:
        """Return nothing: the core reads no objects."""

    def close(self) -> None:
        """Do nothing: nothing is open between reads."""


class ObjectWriter:
    """A new object: sent in parts, several at once, and seen when it is synced."""

    def __init__(self, storage: ObjectStorage, name: str, part: int) -> None:
        """Begin the object."""
        self._storage = storage
        self._name = name
        self._size = 0
        self._answered = True
        network = storage.network
        self._file: Any = network.obstore.open_writer(
            storage.objects, name, buffer_size=part, max_concurrency=_PARTS
        )

    def write(self, data: bytes | memoryview | Bytes) -> int:
        """Append all of `data`, which may be changed afterwards; return its length."""
        # obstore keeps what it is given, and sends it later.
        copy = bytes(data)
        self._request(lambda: self._file.write(copy))
        self._size += len(copy)
        return len(copy)

    def begin(self, data: Bytes) -> Callable[[], int]:
        """Append all of `data` at once: it is sent beside other work in any case."""
        length = self.write(data)
        return lambda: length

    def sync(self) -> None:
        """Send what is left and make the object durable."""
        try:
            self._request(self._file.close)
        except NetworkError:
            raise
        except OSError:
            # The first answer was lost, perhaps, and the second says that there is no such upload.
            if not self._there():
                raise

    def _request(self, send: Callable[[], object]) -> None:
        # Sent again by obstore, part by part: what has been handed over is not here any more.
        try:
            self._storage.network.request("write", self._storage / self._name, send, once=True)
        except NetworkError:
            self._answered = False
            raise

    def _there(self) -> bool:
        try:
            return self._storage.size_of(self._name) == self._size
        except OSError:
            return False

    def rename(self, name: str) -> None:
        """Do nothing: a synced object has its name already."""
        if name != self._name:
            raise ValueError(f"{self._storage / self._name} cannot become {name}")
        self._file = None

    def discard(self) -> None:
        """Delete the object, if it has not been renamed."""
        file, self._file = self._file, None
        if file is None:
            return
        if not file.closed() and self._answered:
            with contextlib.suppress(Exception):
                # An error that leaves the block has it give the upload up.
                file.__exit__(OSError, OSError(), None)
        elif self._answered:
            with contextlib.suppress(OSError):
                self._storage.remove(self._name)
