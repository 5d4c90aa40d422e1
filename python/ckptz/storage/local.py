"""Files of one directory: durable, atomic writes, and reads at an offset.

A file is written under a temporary name, synced, renamed and the directory synced: whoever sees
its name sees all of it, also after a power cut. Nothing is ever overwritten in place. After a
failed sync a file is discarded: trying again would report success for lost data.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import StoreLockedError

__all__ = ["Listed", "LocalStorage", "Reader", "Writer", "replace_file"]

Bytes = NDArray[np.uint8]

TEMPORARY = ".tmp-"
LOCK = "lock"

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Listed(NamedTuple):
    """A file of a directory. Two of them are equal only if the file is surely the same."""

    name: str
    size: int
    changed: int
    inode: int


class Reader:
    """A file open for reading at any offset."""

    def __init__(self, path: Path) -> None:
        """Open `path`, which must not be a link."""
        self.path = path
        self._descriptor = os.open(path, _READ)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset`, fewer where the file ends."""
        room = np.empty(length, np.uint8)
        view = room.data
        done = 0
        while done < length:
            got = os.preadv(self._descriptor, [view[done:]], offset + done)
            if got == 0:
                break
            done += got
        return room[:done]

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.close()


class Writer:
    """A new file under a temporary name, until it is renamed or discarded."""

    def __init__(self, directory: Path) -> None:
        """Create the file in `directory`."""
        self.path = directory / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        self._descriptor = os.open(self.path, _CREATE, 0o666)

    def write(self, data: bytes | memoryview | Bytes) -> None:
        """Append all of `data`."""
        view = data.data if isinstance(data, np.ndarray) else memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def sync(self) -> None:
        """Make the content durable. The file must be discarded if this raises."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def rename(self, name: str) -> None:
        """Give the synced file its name. The directory must be synced for that to last."""
        self._close()
        self.path.rename(self.path.with_name(name))

    def discard(self) -> None:
        """Delete the file, if it has not been renamed."""
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class LocalStorage:
    """A directory that holds a store."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Name the directory; nothing is touched yet."""
        self.directory = Path(directory)
        self._lock = -1

    def __str__(self) -> str:
        return str(self.directory)

    def __truediv__(self, name: str) -> Path:
        """Path of a file, for messages."""
        return self.directory / name

    def exists(self) -> bool:
        """Whether the directory is there."""
        return self.directory.is_dir()

    def create(self) -> None:
        """Make the directory, and those above it, durably."""
        missing = []
        directory = self.directory
        while not directory.is_dir():
            missing.append(directory)
            directory = directory.parent
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):
                directory.mkdir()
            _sync_directory(directory.parent)

    def names(self) -> list[Listed]:
        """List the regular files, in order of their names; none if the directory is not there."""
        found = []
        try:
            with os.scandir(self.directory) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        if entry.is_file(follow_symlinks=False):
                            stat = entry.stat(follow_symlinks=False)
                            identity = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
                            found.append(Listed(entry.name, *identity))
        except FileNotFoundError:
            return []
        return sorted(found)

    def open(self, name: str) -> Reader:
        """Open a file for reading."""
        return Reader(self.directory / name)

    def writer(self) -> Writer:
        """Begin a new file."""
        return Writer(self.directory)

    def sync(self) -> None:
        """Make renames and deletions durable."""
        _sync_directory(self.directory)

    def remove(self, name: str) -> None:
        """Delete a file; one that is gone already is fine."""
        with contextlib.suppress(FileNotFoundError):
            (self.directory / name).unlink()

    def lock(self) -> None:
        """Become the directory's writer, or raise `StoreLockedError` at once. Once is enough."""
        if self._lock >= 0:
            return
        descriptor = os.open(self.directory / LOCK, _LOCK, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StoreLockedError(
                f"{self.directory}: another writer holds this store; close it first, "
                "or open the store with readonly=True"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        self._lock = descriptor

    @property
    def locked(self) -> bool:
        """Whether this object is the directory's writer."""
        return self._lock >= 0

    def unlock(self) -> None:
        """Let others write; further calls do nothing."""
        if self._lock >= 0:
            descriptor, self._lock = self._lock, -1
            os.close(descriptor)

    def remove_unfinished(self) -> None:
        """Delete what a writer that died has left. Only for the directory's writer."""
        for listed in self.names():
            if listed.name.startswith(TEMPORARY):
                self.remove(listed.name)


class replace_file:  # noqa: N801 - used like a function
    """A context manager that writes a single file atomically: all of it, or nothing."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Name the file that will be written or replaced."""
        self.path = Path(path)

    def __enter__(self) -> Writer:
        self._writer = Writer(self.path.parent)
        return self._writer

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._writer.sync()
                self._writer.rename(self.path.name)
                _sync_directory(self.path.parent)
        finally:
            self._writer.discard()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(directory)) from error
    finally:
        os.close(descriptor)
