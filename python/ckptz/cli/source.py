"""What a command reads: a store, or one file as a store of one snapshot."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import FormatError, MissingSnapshotError
from ..restore import OpenChain
from ..storage import NO_FILES, Listed, LocalStorage, Reader
from ..store import SUFFIX, Entry, Store
from .arguments import open_place
from .console import Console

__all__ = ["Source"]


class _OneFile(LocalStorage):
    """A directory as if it held one file alone, whose name says that it is a snapshot."""

    def __init__(self, path: Path) -> None:
        self._place = path.resolve()
        super().__init__(self._place.parent)
        self._shown = path

    def __str__(self) -> str:
        return str(self._shown)

    def __truediv__(self, name: str) -> Path:
        return self._shown

    def names(self, known: Mapping[str, Listed] = NO_FILES) -> list[Listed]:
        stat = self._place.stat()
        return [Listed(SUFFIX, stat.st_size, stat.st_mtime_ns, stat.st_ino)]

    def open(self, name: str) -> Reader:
        reader = super().open(self._place.name)
        reader.path = self._shown
        return reader


class Source:
    """A store or a file, open for reading."""

    def __init__(
        self, path: Path | str, console: Console, threads: int, *, damaged: bool = False
    ) -> None:
        """Read which snapshots there are.

        damaged: go on where none can be restored, for `verify`. Raises `OSError`, `FormatError`
        for a file that cannot be used, `MissingSnapshotError`.
        """
        self.path = path
        self.threads = threads
        file = path if isinstance(path, Path) and not path.is_dir() else None
        self.single = file is not None
        if file is not None and not file.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if file is not None and not file.is_file():
            raise OSError(errno.EINVAL, "neither a folder nor a regular file", str(path))
        self.store = Store(open_place(path) if file is None else _OneFile(file))
        if self.single:
            self._load_file(console, damaged)
        else:
            self.store.refresh()
        found = (self.store.entries, self.store.residuals, self.store.problems)
        if not any(found):
            raise MissingSnapshotError(f"{path}: no snapshots in this folder")
        if not damaged and not self.entries():
            raise MissingSnapshotError(f"{path}: no snapshot here can be restored")

    def _load_file(self, console: Console, damaged: bool) -> None:
        self.store.storage.open("").close()  # for the system's own error, if it has one
        heard, console.hears_warnings = console.hears_warnings, False
        self.store.refresh()
        console.hears_warnings = heard
        for text in self.store.problems.values():
            if not damaged:
                raise FormatError(text)
        for entry in (*self.store.entries.values(), *self.store.residuals.values()):
            if not entry.meta.full:
                raise MissingSnapshotError(
                    f"{self.path}: needs other files of its store; name the folder instead"
                )

    def entries(self) -> list[Entry]:
        """Return the snapshots that can be restored, the best one of each step, steps rising."""
        return [generations[0] for generations in self.store.steps().values()]

    def at(self, step: int | None) -> list[Entry]:
        """Return what may serve as a step, or as the newest snapshot, best first."""
        return list(self.store.restorable()) if step is None else self.store.at(step)

    def open(self, entry: Entry, *, residual: bool = True) -> OpenChain:
        """Open a snapshot, with its residual if that is there and wanted."""
        found = self.store.residuals.get(entry.id) if residual else None
        return OpenChain.of_store(self.store, entry, residual=found, threads=self.threads)
