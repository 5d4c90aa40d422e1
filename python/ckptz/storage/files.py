"""Single files: reads at an offset, and new files that get their name only when they are durable.

A file is written under a temporary name, synced, renamed and the directory synced: whoever sees
its name sees all of it, also after a power cut. Nothing is ever overwritten in place. After a
failed sync a file is discarded: trying again would report success for lost data.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

from ..beside import begin
from ..closing import Closing
from ..codec import Payload
from ..errors import OtherProcessError
from .base import Bytes

__all__ = ["UNFINISHED", "Reader", "Writer", "replace_file", "sync_directory"]

TEMPORARY = ".tmp-"
UNFINISHED = re.compile(r"\.tmp-[0-9]+-[0-9a-f]{16}")
"""Names of what a store's writer has not finished: its process, and a random number."""
_OTHERS = ".new-"  # of files that are none of a store: its writer must not delete them

# Without waiting for a writer, should the name be a pipe's.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
# What file systems answer that cannot sync a directory and need not.
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP})


@contextlib.contextmanager
def _naming(path: Path | str) -> Iterator[None]:
    """Have errors of the system say which file they are about."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


class Reader(Closing):
    """A file open for reading at any offset."""

    def __init__(self, path: Path) -> None:
        """Open `path`, which must not be a link."""
        self.path: Path | str = path
        self._payloads: dict[int, Payload | None] = {}
        self._descriptor = os.open(path, _READ)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int) -> Bytes:
        """Return `length` bytes from `offset`, fewer where the file ends."""
        room = np.empty(length, np.uint8)
        view = room.data
        done = 0
        with _naming(self.path):
            while done < length:
                got = os.preadv(self._descriptor, [view[done:]], offset + done)
                if got == 0:
                    break
                done += got
        return room[:done]

    def payload(self, start: int) -> Payload | None:
        """Return the file from an offset on for the core to read; None where that cannot be."""
        if start not in self._payloads:
            self._payloads[start] = None
            # The system may have no folder of what is open, or no more descriptors.
            with contextlib.suppress(OSError):
                self._payloads[start] = Payload(self._descriptor, start)
        return self._payloads[start]

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        self._payloads.clear()
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.close()


class Writer:
    """A new file under a temporary name, until it is renamed or discarded."""

    def __init__(
        self, directory: Path, unfinished: set[Path] | None = None, shown: Path | None = None
    ) -> None:
        """Create the file in `directory`.

        unfinished: holds its name for as long as the file may lie about. shown: what errors name
        instead of the temporary name, which tells a user nothing: by default the directory.
        """
        self._shown = shown or directory
        self.path = (
            directory
            / f"{TEMPORARY if shown is None else _OTHERS}{os.getpid()}-{os.urandom(8).hex()}"
        )
        self._unfinished = set() if unfinished is None else unfinished
        self._unfinished.add(self.path)
        self._open: _Descriptor | None = None
        self._process = os.getpid()
        with _naming(self._shown):
            self._open = _Descriptor(os.open(self.path, _CREATE, 0o666))

    @property
    def _descriptor(self) -> int:
        return -1 if self._open is None else self._open.number

    def write(self, data: bytes | memoryview | Bytes) -> int:
        """Write all of `data`; return its length. Raises `OtherProcessError` in a forked child."""
        self._check_process()
        with _naming(self._shown):
            return _write_all(self._descriptor, data)

    def begin(self, data: Bytes) -> Callable[[], int]:
        """Begin to write all of `data`, which must stay as it is; the result waits for the end."""
        descriptor, shown = self._open, self._shown
        if descriptor is None:
            raise ValueError("the file is closed")
        descriptor.busy = True

        def work() -> int:
            try:
                with _naming(shown):
                    return _write_all(descriptor.number, data)
            finally:
                descriptor.busy = False

        return begin(work)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise OtherProcessError(f"{self._shown}: the process that this was forked from writes")

    # What `zipfile` asks of a file beside `write`.

    def tell(self) -> int:
        """Return where the next bytes go."""
        return self.seek(0, os.SEEK_CUR)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to an offset."""
        with _naming(self._shown):
            return os.lseek(self._descriptor, offset, whence)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def sync(self) -> None:
        """Make the content durable. The file must be discarded if this raises."""
        with _naming(self._shown):
            os.fsync(self._descriptor)

    def rename(self, name: str) -> None:
        """Give the synced file its name. The directory must be synced for that to last."""
        self._check_process()
        with _naming(self._shown):
            self.close()
            self.path.rename(self.path.with_name(name))
        self._unfinished.discard(self.path)

    def discard(self) -> None:
        """Delete the file, if it has not been renamed, and if it is this process's own."""
        with contextlib.suppress(OSError):
            self.close()
        if os.getpid() != self._process:
            return
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
            self._unfinished.discard(self.path)

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        descriptor, self._open = self._open, None
        # Else who still writes is the last to let go of it.
        if descriptor is not None and not descriptor.busy:
            descriptor.close()

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.close()


class _Descriptor:
    """What is open, until the last who uses it lets go of it.

    Who is interrupted may no longer wait for a write: its bytes must not go to whatever file has
    got the number since. A duplicate for each write would be one more thing to close, and what is
    closed is flushed by some file systems.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.busy = False
        """Whether a write is under way."""

    def close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.close()


def _write_all(descriptor: int, data: bytes | memoryview | Bytes) -> int:
    view = data.data if isinstance(data, np.ndarray) else memoryview(data)
    length = view.nbytes
    while view:
        written = os.write(descriptor, view)
        if written == 0:
            raise OSError(errno.EIO, "nothing could be written")
        view = view[written:]
    return length


class replace_file:  # noqa: N801 - used like a function
    """A context manager that writes a single file atomically: all of it, or nothing.

    If the body raises, an old file of that name stays. Raises `OSError`, also where something is
    there that is no regular file; only if the directory's sync fails is the file new all the same.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Name the file that will be written or replaced; of a link, what it leads to.

        Raises `ValueError` for an empty path, which would mean the current directory.
        """
        if not os.fspath(path):
            raise ValueError("an empty path names no file")
        self._shown = Path(path)
        # Absolute, so that changing the directory meanwhile changes nothing.
        self.path = Path(os.path.realpath(path))

    def __enter__(self) -> Writer:
        self._check()
        self._writer = Writer(self.path.parent, shown=self._shown)
        return self._writer

    def _check(self) -> None:
        try:
            mode = os.lstat(self.path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISREG(mode):
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(number, "not a regular file, and so not replaced", str(self._shown))

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
                sync_directory(self.path.parent)
        finally:
            self._writer.discard()


def sync_directory(directory: Path) -> None:
    """Make what has been made, renamed or deleted in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise OSError(error.errno, error.strerror, str(directory)) from error
    finally:
        os.close(descriptor)
