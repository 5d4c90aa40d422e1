"""A directory that holds a store: its files, and the lock of its one writer."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from ..errors import StoreLockedError
from .base import NO_FILES, Listed
from .files import UNFINISHED, Reader, Writer, sync_directory

__all__ = ["LocalStorage"]

_T = TypeVar("_T")

LOCK = "lock"

_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


_living: weakref.WeakSet[LocalStorage] = weakref.WeakSet()


class LocalStorage:
    """A directory that holds a store."""

    shared = False

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Name the directory, wherever the process may go later; nothing is touched yet.

        Raises `ValueError` for an empty path, which would mean the current directory.
        """
        if not os.fspath(directory):
            raise ValueError("an empty path names no store")
        self.directory = Path(directory).absolute()
        self.links: set[str] = set()
        """Names of symbolic links, which are not followed, as of the last listing."""
        self._unfinished: set[Path] = set()
        # A file object: if an interrupt comes before it is kept, it closes itself.
        self._lock: io.FileIO | None = None
        self._unlocking = False
        self._owner = 0
        _living.add(self)

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
        for made in reversed(missing):
            try:
                made.mkdir()
            except FileExistsError:
                if not made.is_dir():
                    raise
            sync_directory(made.parent)
        # Whoever made this one may have died before it was durable.
        with contextlib.suppress(PermissionError):
            sync_directory(directory.parent)

    def names(self, known: Mapping[str, Listed] = NO_FILES) -> list[Listed]:
        """List the regular files, in order of their names; none if the directory is not there."""
        found: dict[str, Listed] = {}
        links = set()
        try:
            with os.scandir(self.directory) as entries:
                for entry in entries:
                    one = known.get(entry.name)
                    if one is None or one.identity != entry.inode():
                        one = _looked_at(entry)
                    if one is not None:
                        found[one.name] = one
                    elif entry.is_symlink():
                        links.add(entry.name)
        except FileNotFoundError:
            return []
        self.links = links
        return [found[name] for name in sorted(found)]

    def open(self, name: str) -> Reader:
        """Open a file for reading."""
        return Reader(self.directory / name)

    def writer(self, name: str | None = None, size: int = 0) -> Writer:
        """Begin a new file, which gets its name when it is renamed."""
        return Writer(self.directory, self._unfinished)

    def commit(self, name: str, data: bytes) -> bool:
        """Make a small file durably, unless there is one. Only for the directory's writer."""
        with contextlib.suppress(FileNotFoundError), self.open(name) as there:
            return there.read(0, there.size).tobytes() == data
        writer = self.writer()
        try:
            writer.write(data)
            writer.sync()
            writer.rename(name)
        finally:
            writer.discard()
        self.sync()
        return True

    def begin(self, work: Callable[[], _T]) -> Callable[[], _T]:
        """Put the work off until its result is wanted."""
        return work

    def sync(self) -> None:
        """Make renames and deletions durable."""
        sync_directory(self.directory)

    def remove(self, name: str) -> None:
        """Delete a file; one that is gone already is fine."""
        with contextlib.suppress(FileNotFoundError):
            (self.directory / name).unlink()

    def lock(self) -> None:
        """Become the directory's writer, or raise `StoreLockedError` at once. Once is enough."""
        while not self.locked:
            self.unlock()
            file = io.FileIO(self.directory / LOCK, "r+", opener=_open_lock)
            try:
                # At once: a child that is forked meanwhile closes its copy.
                self._owner, self._lock, self._unlocking = os.getpid(), file, False
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BaseException as error:
                self._lock = None
                file.close()
                if not isinstance(error, BlockingIOError):
                    raise
                raise StoreLockedError(
                    f"{self.directory}: another writer holds this store; close it first, "
                    "or open the store with readonly=True"
                ) from None

    @property
    def locked(self) -> bool:
        """Whether this object is the directory's writer.

        It is not in a forked child, nor once the lock's file has been deleted or moved away.
        """
        if self._lock is None or self._unlocking or self._owner != os.getpid():
            return False
        try:
            there = os.lstat(self.directory / LOCK)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(os.fstat(self._lock.fileno()), there)

    def unlock(self) -> None:
        """Let others write; further calls do nothing."""
        file = self._lock
        if file is not None:
            # Whatever interrupts this, it is no writer from here on, and the next call goes on.
            self._unlocking = True
            try:
                # Children that were forked since hold the file open too: closing is not enough.
                # But they must not let go of what is their parent's.
                if self._owner == os.getpid() and not file.closed:
                    fcntl.flock(file, fcntl.LOCK_UN)
            finally:
                file.close()
                self._lock = None

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.unlock()

    def remove_unfinished(self) -> None:
        """Delete what a writer that died has left. Only for the directory's writer."""
        for listed in self.names():
            if UNFINISHED.fullmatch(listed.name):
                self.remove(listed.name)

    def remove_own_unfinished(self) -> None:
        """Delete what failed saves of this object could not."""
        for path in list(self._unfinished):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                self._unfinished.discard(path)


def _open_lock(path: str | os.PathLike[str], _flags: int) -> int:
    return os.open(path, _LOCK, 0o666)


def _looked_at(entry: os.DirEntry[str]) -> Listed | None:
    """Return a regular file as it is; `None` for all else, and for one that is gone."""
    try:
        if not entry.is_file(follow_symlinks=False):
            return None
        stat = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return Listed(entry.name, stat.st_size, stat.st_mtime_ns, stat.st_ino)


def _close_locks() -> None:
    """Close a forked child's copies of locks: it may outlive the writer, who may be killed."""
    for storage in list(_living):
        with contextlib.suppress(OSError):
            storage.unlock()


os.register_at_fork(after_in_child=_close_locks)
