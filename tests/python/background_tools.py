"""Helpers for tests of asynchronous saves: one that is held while it is under way."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from ckptz.writer import SnapshotWriter

LONG = 60.0  # seconds; whoever waits so long has failed


class Gate:
    """Holds every save after its state has been staged and before anything is written."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._reached = threading.Event()
        self.failure: BaseException | None = None
        """What the save fails with, once it may go on."""

    def passed(self) -> None:
        self._reached.set()
        assert self._open.wait(LONG)
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def reached(self) -> None:
        """Wait until a save is held."""
        assert self._reached.wait(LONG)

    def open(self) -> None:
        self._open.set()

    def shut(self) -> None:
        self._open.clear()
        self._reached.clear()


@contextlib.contextmanager
def gate() -> Iterator[Gate]:
    """Put a gate before all writers."""
    made = Gate()
    write = SnapshotWriter.write

    def held(self: SnapshotWriter, *arguments: Any, **options: Any) -> Any:
        made.passed()
        return write(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SnapshotWriter, "write", held)
        try:
            yield made
        finally:
            made.open()
