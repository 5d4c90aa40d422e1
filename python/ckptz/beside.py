"""Work beside other work: what is coded is written while more is coded.

An interrupt can come between any two steps of the main thread, so what waits here waits for plain
locks, as in `background`: futures of the standard library can be left locked.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from .errors import check_process

__all__ = ["begin"]

_T = TypeVar("_T")

_own = threading.local()


def begin(work: Callable[[], _T]) -> Callable[[], _T]:
    """Begin work on another thread; what is returned waits for its end, and returns its result.

    Only whoever began it may wait, as often as wanted; what the work raises is raised there. All
    that one thread begins is done in order. Where there can be no more threads, as at the end of
    the interpreter, the work is put off until its result is wanted.
    """
    piece = _Piece(work)
    helper = _helper()
    if helper is None:
        piece.put_off = True
    else:
        helper.queue.put(piece)
    return piece.wait


def _helper() -> _Helper | None:
    helper: _Helper | None = getattr(_own, "helper", None)
    if sys.is_finalizing():
        return None  # it would never come to its turn
    if helper is None or helper.process != os.getpid():
        try:
            helper = _own.helper = _Helper()
        except RuntimeError:
            return None
    return helper


class _Piece(Generic[_T]):
    """A piece of work, and what became of it."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self._work: Callable[[], _T] | None = work
        self._process = os.getpid()
        self._running = threading.Lock()
        self._running.acquire()
        self._over = False
        self.put_off = False
        """Whether it is done by whoever waits."""
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it; for the thread that does such work."""
        try:
            if self._work is not None:
                self._result = self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._work = None
            self._over = True
            self._running.release()

    def wait(self) -> _T:
        """Wait until it is done; return or raise what it has come to."""
        if not self._over and self.put_off:
            self.run()
        if not self._over:
            check_process(self._process, "what is done beside other work")
            # Never let go of again: an interrupt may come after this, and another wait.
            self._running.acquire()
        if self._error is not None:
            raise self._error
        result: _T = self._result
        return result


_Queue = SimpleQueue["_Piece[Any] | None"]


class _Helper:
    """A thread that works for the one that made this, as long as that lives."""

    def __init__(self) -> None:
        """Start the thread. Raises `RuntimeError` where there can be no more."""
        self.process = os.getpid()
        self.queue: _Queue = SimpleQueue()
        # Nothing is lost with it: whoever needs what it does waits for that.
        thread = threading.Thread(
            target=_work, args=(self.queue,), name="ckptz-beside", daemon=True
        )
        try:
            thread.start()
        except BaseException:
            self.queue.put(None)
            raise

    def __del__(self) -> None:
        self.queue.put(None)


def _work(queue: _Queue) -> None:
    while (piece := queue.get()) is not None:
        piece.run()
        # Or its result would live until the next one comes.
        del piece
