"""What a storage of a store is: the one interface that directories and object stores satisfy."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..codec import Payload
from ..errors import NetworkError

__all__ = ["NO_FILES", "Bytes", "Listed", "Sink", "Source", "Storage", "is_shortage"]

Bytes = NDArray[np.uint8]
_T = TypeVar("_T")

_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def is_shortage(error: BaseException) -> bool:
    """Whether an error tells of a lack of descriptors, memory or network, nothing of the file."""
    return isinstance(error, NetworkError) or (
        isinstance(error, OSError) and error.errno in _SHORTAGES
    )


class Listed(NamedTuple):
    """A file of a storage. Two of them are equal only if the file is surely the same."""

    name: str
    size: int
    changed: int
    """When it was made or changed, in nanoseconds."""
    identity: int | str
    """The inode, or the tag of an object."""


NO_FILES: Mapping[str, Listed] = MappingProxyType({})


class Source(Protocol):
    """A file open for reading, by many threads at once."""

    path: Path | str
    """What messages name."""
    size: int

    def read(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset`, fewer where the file ends."""

    def payload(self, start: int) -> Payload | None:
        """Return the file from an offset on for the core to read, where it can."""

    def close(self) -> None:
        """Close the file; further calls do nothing."""

    def __enter__(self) -> Source: ...

    def __exit__(self, *_: object) -> None: ...


class Sink(Protocol):
    """A new file that nobody sees until it is whole."""

    def write(self, data: bytes | memoryview | Bytes) -> int:
        """Append all of `data`, which may be changed afterwards; return its length."""

    def begin(self, data: Bytes) -> Callable[[], int]:
        """Begin to append all of `data`, beside other work; the result waits for the end.

        Until then `data` must stay as it is, and nothing else may be done with the file but to
        discard it.
        """

    def sync(self) -> None:
        """Make the content durable. The file must be discarded if this raises."""

    def rename(self, name: str) -> None:
        """Give the synced file its name, which lasts once the storage is synced too."""

    def discard(self) -> None:
        """Delete the file, if it has not been renamed."""


class Storage(Protocol):
    """What holds a store's files. Names are those of the format's page, without folders.

    Methods raise `OSError`; in an object store `NetworkError`, which is one, once the deadline
    is over.
    """

    shared: bool
    """Whether nothing keeps other writers out: the name of a commit alone decides then."""

    links: set[str]
    """Names of symbolic links, which are not followed, as of the last listing."""

    def __truediv__(self, name: str) -> Path | str:
        """Path or URL of a file, for messages."""

    def exists(self) -> bool:
        """Whether there is something to read."""

    def create(self) -> None:
        """Make the place, durably, where it must be made."""

    def names(self, known: Mapping[str, Listed] = NO_FILES) -> list[Listed]:
        """List the files, in order of their names; none if the place is not there.

        known: files by name that, if they are there, need not be looked at again.
        """

    def open(self, name: str) -> Source:
        """Open a file for reading."""

    def writer(self, name: str | None = None, size: int = 0) -> Sink:
        """Begin a new file. name: the one that it will get, where `shared`. size: about."""

    def commit(self, name: str, data: bytes) -> bool:
        """Make a small file durably, unless there is one of this name.

        Returns whether the file that is there now holds these very bytes.
        """

    def sync(self) -> None:
        """Make renames and deletions durable."""

    def remove(self, name: str) -> None:
        """Delete a file; one that is gone already is fine."""

    def begin(self, work: Callable[[], _T]) -> Callable[[], _T]:
        """Begin work, beside other work where that is quicker; the result waits for its end."""

    def lock(self) -> None:
        """Become the writer, or raise `StoreLockedError` at once. Once is enough."""

    @property
    def locked(self) -> bool:
        """Whether this object is the writer."""

    def unlock(self) -> None:
        """Let others write; further calls do nothing."""

    def remove_unfinished(self) -> None:
        """Delete what a writer that died has left. Only for the writer."""

    def remove_own_unfinished(self) -> None:
        """Delete what failed saves of this object could not."""
