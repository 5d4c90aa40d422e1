"""A signal that lets the save under way end first."""

from __future__ import annotations

import os
import signal
import threading
import time
from queue import SimpleQueue
from types import FrameType

from .background import Background

__all__ = ["Drain"]

# For a Python handler to be called, once the main thread has been told.
_GRACE = 1.0


class Drain:
    """The handler of one signal, and the thread that it wakes.

    What the signal did so far it does only after the save under way, or the deadline in seconds.
    """

    def __init__(self, background: Background, signum: int, deadline: float) -> None:
        """Put the handler in its place."""
        if deadline < 0:
            raise ValueError(f"deadline={deadline!r} is not a number of seconds")
        self._background = background
        self._signum = signum
        self._deadline = deadline
        self._process = os.getpid()
        self._before = signal.getsignal(signum)
        if self._before is None:
            raise ValueError(f"signal {signum} has a handler that Python knows nothing of")
        self._drained = False
        # A handler may put into it whatever it interrupts.
        self._asked: SimpleQueue[bool] = SimpleQueue()
        signal.signal(signum, self._handle)
        threading.Thread(target=self._watch, name="ckptz-drain", daemon=True).start()

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if not self._drained and os.getpid() == self._process:
            self._asked.put(True)
        elif callable(self._before):
            self._before(signum, frame)
        elif self._before == signal.SIG_DFL:
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)

    def end(self) -> None:
        """Put the handler before in its place, where that can be done from here."""
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(self._signum) == self._handle:
            signal.signal(self._signum, self._before)
            self._asked.put(False)

    def _watch(self) -> None:
        if not self._asked.get():
            return
        self._background.join(self._deadline)
        self._drained = True
        os.kill(self._process, self._signum)
        if self._before == signal.SIG_DFL:
            # The main thread may be in a call that does not return.
            time.sleep(_GRACE)
            os._exit(128 + self._signum)
