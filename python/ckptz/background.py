"""A thread that saves, one state after another, and what becomes of each save.

An interrupt can come between any two steps of the main thread, so nothing here is torn by one:
handing over can be repeated, and waiting is for plain locks of the waiter's own. `Condition`,
`Event` and `Queue` are written in Python, and left locked by an interrupt on their way in.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue

from .errors import CkptzError, check_process, warn

__all__ = ["Background", "SaveFuture"]

# Seconds. A signal that comes just as the main thread begins to wait does not end the wait, and
# its handler is called only when Python gets its turn.
_TURN = 1.0


class SaveFuture:
    """One save: whether its state is staged, and its snapshot durable."""

    def __init__(self, step: int, *, skipped: bool = False, durable: bool = False) -> None:
        """Make the future of a save that is over already, or of one for `Background.submit`."""
        self.step = step
        self.skipped = skipped
        """Whether nothing was done, because the save before was under way."""
        self.staged = not skipped
        """Whether the caller may change the tensors: true as soon as `save` has returned."""
        self.durable = durable
        """Whether the snapshot is in the store, for good."""
        self.error: BaseException | None = None
        """Why it is not."""
        self.reported = False
        """Whether somebody has been told of the error."""
        self._process = os.getpid()
        self._over = skipped or durable
        self._claim = threading.Lock()
        self._waiters: list[threading.Lock] = []
        self._runner = 0
        self._work: Callable[[], None] | None = None
        self._post: Callable[[SaveFuture], None] | None = None

    @property
    def done(self) -> bool:
        """Whether the save is over: durable, failed or skipped."""
        return self._over

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the save is over; return whether its snapshot is durable (or was skipped).

        timeout: seconds. Raises `TimeoutError` after that, or the error that the save ended with.
        """
        if not self.join(timeout):
            raise TimeoutError(f"the save of step {self.step} is still under way")
        self.report()
        return self.durable

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the save is over, however it ends; return whether it is."""
        if self._over:
            return True
        check_process(self._process, f"the save of step {self.step}")
        if self._runner == threading.get_ident():
            raise CkptzError(f"the save of step {self.step} cannot wait for itself")
        self.insist()
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        end = math.inf if timeout is None else time.monotonic() + timeout
        while not self._over and (left := end - time.monotonic()) > 0:
            waiter.acquire(timeout=min(left, _TURN))
        return self._over

    def insist(self) -> None:
        """See to it that the work is begun: whoever handed it over may have been interrupted."""
        post = self._post
        if post is not None and not self._claim.locked():
            post(self)

    def report(self) -> None:
        """Raise the error that the save ended with, if it did."""
        if self.error is not None:
            self.reported = True
            raise self.error

    def run(self) -> None:
        """Do the work, unless that has been begun already; for the thread that saves."""
        if not self._claim.acquire(blocking=False):
            return
        self._runner = threading.get_ident()
        try:
            if self._work is not None:
                self._work()
            self.durable = True
        except BaseException as error:
            self.error = error
        finally:
            self._work = self._post = None
            self._over = True
            self._runner = 0
            for waiter in self._waiters:
                waiter.release()

    def __repr__(self) -> str:
        stands = "skipped" if self.skipped else "durable" if self.durable else "under way"
        if self.error is not None:
            stands = repr(self.error)
        return f"SaveFuture(step={self.step}, {stands})"


_Queue = SimpleQueue[SaveFuture | None]
_living: weakref.WeakSet[Background] = weakref.WeakSet()


class Background:
    """Does one piece of work at a time on a thread of its own."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process = os.getpid()
        self._queue: _Queue | None = None
        self._last: SaveFuture | None = None
        _living.add(self)

    @property
    def busy(self) -> bool:
        """Whether a save is under way."""
        if self._last is None or self._last.done:
            return False
        self._last.insist()
        return True

    @property
    def last(self) -> SaveFuture | None:
        """The save that was submitted last."""
        return self._last

    def submit(self, future: SaveFuture, work: Callable[[], None]) -> SaveFuture:
        """Have work done. What was submitted before must be over."""
        future._work, future._post = work, self._hand_over
        # From here on it is under way: whoever waits for it sees to it that it is done.
        self._last = future
        try:
            self._hand_over(future)
        except RuntimeError:
            # There can be no more threads.
            self._last = None
            raise
        return future

    def _hand_over(self, future: SaveFuture) -> None:
        if self._queue is None:
            queue: _Queue = SimpleQueue()
            # Its end is waited for at exit, below: what never ends can be interrupted there.
            thread = threading.Thread(target=_work, args=(queue,), name="ckptz-save", daemon=True)
            try:
                thread.start()
            except BaseException:
                queue.put(None)
                raise
            self._queue = queue
        self._queue.put(future)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until nothing is under way; return whether that is so."""
        return self._last is None or self._last.join(timeout)

    def report(self) -> None:
        """Raise the error of the last save, if it failed and nobody has been told."""
        if self._last is not None and not self._last.reported:
            self._last.report()

    def report_by_warning(self) -> None:
        """Warn of the error of the last save, if it failed and nobody has been told."""
        last = self._last
        if last is not None and last.error is not None and not last.reported:
            last.reported = True
            warn(f"the save of step {last.step} failed: {last.error!r}")

    def __del__(self) -> None:
        if self._process == os.getpid():
            if self._queue is not None:
                self._queue.put(None)
            self.report_by_warning()


def _work(queue: _Queue) -> None:
    # To wake this thread must not put the one that trains off its core.
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    while (future := queue.get()) is not None:
        future.run()
        # Or it would live until the next one comes.
        del future


def _drain_all() -> None:
    """Let saves end before the interpreter does, and tell of those that failed."""
    for background in list(_living):
        if background._process != os.getpid():
            continue
        try:
            background.join()
        except BaseException as error:
            last = background.last
            step = "?" if last is None else last.step
            warn(f"the save of step {step} was not finished: {error!r}")
        background.report_by_warning()


atexit.register(_drain_all)
