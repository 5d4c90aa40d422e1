"""How far a command is, on a terminal only."""

from __future__ import annotations

import importlib
import os
import sys
import time
from types import TracebackType
from typing import Any, TextIO

from .report import size

__all__ = ["Progress"]

_EVERY = 0.1  # seconds
_COLUMNS, _ROWS = 80, 24


class Progress:
    """A line of progress in bytes: a bar by tqdm if that is installed, else a plain counter.

    A context manager. It shows nothing where stderr is no terminal, and leaves nothing behind.
    """

    def __init__(self, what: str, total: int | None, *, quiet: bool = False) -> None:
        """Say what is being done. total: bytes in all, where that is known."""
        self._line: _Plain | _Bar | None = None
        if quiet or sys.stderr is None or not sys.stderr.isatty():
            return
        try:
            tqdm = importlib.import_module("tqdm").tqdm
        except ImportError:
            self._line = _Plain(sys.stderr, what, total)
        else:
            self._line = _Bar(tqdm, what, total)

    def advance(self, done: int) -> None:
        """Add bytes that are done."""
        if self._line is not None:
            self._line.advance(done)

    def note(self, text: str) -> None:
        """Show what is at hand: the name of a file."""
        if self._line is not None:
            self._line.note(text)

    def clear(self) -> None:
        """Make room for another line; the next change shows progress again."""
        if self._line is not None:
            self._line.clear()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._line is not None:
            self._line.close()


class _Bar:
    """tqdm's bar."""

    def __init__(self, tqdm: Any, what: str, total: int | None) -> None:
        # Terminals that do not know their size (those of containers) would get no bar at all.
        sized = os.get_terminal_size(sys.stderr.fileno()).columns > 0
        self._bar = tqdm(
            desc=what,
            total=total,
            unit="B",
            unit_scale=True,
            leave=False,
            dynamic_ncols=sized,
            ncols=None if sized else _COLUMNS,
            nrows=None if sized else _ROWS,
            file=sys.stderr,
        )

    def advance(self, done: int) -> None:
        self._bar.update(done)

    def note(self, text: str) -> None:
        self._bar.set_postfix_str(text)

    def clear(self) -> None:
        self._bar.clear()

    def close(self) -> None:
        self._bar.close()


class _Plain:
    """A counter on one line, which is written over itself."""

    def __init__(self, stream: TextIO, what: str, total: int | None) -> None:
        self._stream = stream
        self._what = what
        self._of = "" if total is None else f" of {size(total)}"
        self._done = 0
        self._text = ""
        self._shown = 0.0
        self._width = 0

    def advance(self, done: int) -> None:
        self._done += done
        self._show()

    def note(self, text: str) -> None:
        self._text = text
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown < _EVERY:
            return
        self._shown = now
        self._write(f"{self._what}: {size(self._done)}{self._of} {self._text}"[: _COLUMNS - 1])

    def _write(self, line: str) -> None:
        self._stream.write("\r" + line.ljust(self._width) + ("" if line else "\r"))
        self._stream.flush()
        self._width = len(line)

    def clear(self) -> None:
        self._write("")

    def close(self) -> None:
        self._write("")
