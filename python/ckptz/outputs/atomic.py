"""Writes a file so that its name only ever stands for a complete one."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

__all__ = ["atomic_file", "write_array"]

_PIECE = 1 << 24


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Make a new file in the folder of `path` that takes that name once it is complete and on disk.

    If the body raises, the new file is deleted and an old one of that name stays. A symbolic link
    is followed. Raises OSError, also where `path` is there and no regular file.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "not a regular file, and so not replaced", str(path))
    draft = target.with_name(f".tmp-{secrets.token_hex(8)}")
    try:
        with open(draft, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # has no such thing
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_array(file: IO[bytes], array: npt.NDArray[Any]) -> None:
    """Write the bytes of an array in C order: as it is if contiguous, else in bounded pieces."""
    if array.nbytes > _PIECE and not array.flags.c_contiguous:
        rows = max(1, _PIECE // (array.nbytes // len(array)))
        for first in range(0, len(array), rows):
            part = array[first : first + rows]
            write_array(file, part if len(part) < len(array) else part[0])
    elif array.nbytes:
        flat = np.ascontiguousarray(array).reshape(-1)
        file.write(flat.view(np.uint8).data)
