"""Who saves when: one state after another, here or in the background."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from .background import Background, SaveFuture
from .errors import CkptzError, MissingSnapshotError, StepExistsError, StepOrderError
from .publish import check_alone
from .reader import SnapshotReader
from .staging import Staging
from .state import FlatState, flatten
from .store import Entry, Store
from .writer import SnapshotWriter

__all__ = ["Saver"]

Progress = Callable[[int], None]


class Saver:
    """Saves into one store. Many threads may use it; it has them wait for one another."""

    def __init__(
        self, store: Store, reader: SnapshotReader, writer: SnapshotWriter, threads: int
    ) -> None:
        """Name what to save with; nothing is touched yet."""
        self._store = store
        self._reader = reader
        self._writer = writer
        self._threads = threads
        self._staging = Staging(threads)
        self.background = Background()
        self.closed = False
        # Held by whoever saves or is about to, but not by the thread in the background: that has
        # the writer to itself because all others wait for its end first.
        self._saving = threading.RLock()
        self.after: Callable[[Entry, Entry | None, FlatState], None] | None = None
        """Done after a save, with its entry, the one that it goes on from, and the state."""
        self._newest: int | None = None
        """Step that the line ends with, as long as that is surely known."""

    def save(
        self,
        step: int,
        state: object,
        *,
        blocking: bool,
        skip: bool,
        overwrite: bool,
        metrics: Mapping[str, float],
        progress: Progress | None,
    ) -> SaveFuture:
        """Save a state, or stage it and have it saved. skip: not while another is under way."""
        self._check_reentry(sys._getframe())
        if skip and self.background.busy:
            return SaveFuture(step, skipped=True)
        with self._saving:
            if self.closed:
                raise ValueError("this manager is closed")
            if skip and self.background.busy:
                return SaveFuture(step, skipped=True)
            try:
                self.background.join()
                self.background.report()
                flat = flatten(state)
                if blocking:
                    self._write(step, flat, overwrite, metrics, progress)
                    return SaveFuture(step, durable=True)
                return self._begin(step, flat, overwrite, metrics, progress)
            finally:
                if self.closed:
                    self.background.join()
                    self._let_go()

    def _begin(
        self,
        step: int,
        flat: FlatState,
        overwrite: bool,
        metrics: Mapping[str, float],
        progress: Progress | None,
    ) -> SaveFuture:
        """Stage a state and have it saved."""
        if self._newest is None or step <= self._newest:
            # What can be told at once is.
            self._begin_writing()
            self._predecessor(step, overwrite)
        staged = self._staging.stage(flat)
        work = functools.partial(self._finish, step, staged, overwrite, metrics, progress)
        return self.background.submit(SaveFuture(step), work)

    def _finish(
        self,
        step: int,
        flat: FlatState,
        overwrite: bool,
        metrics: Mapping[str, float],
        progress: Progress | None,
    ) -> None:
        """Save what is staged, on the thread in the background."""
        try:
            self._write(step, flat, overwrite, metrics, progress)
        finally:
            if self.closed:
                self._let_go()

    def _write(
        self,
        step: int,
        flat: FlatState,
        overwrite: bool,
        metrics: Mapping[str, float],
        progress: Progress | None,
    ) -> None:
        self._newest = None
        self._begin_writing()
        after = self._predecessor(step, overwrite)
        if after is not self._store.newest():
            # The files that this goes on from have not been looked at.
            self._store.refresh(alone=True)
            after = self._predecessor(step, overwrite)
        entry = self._writer.write(step, flat, after, self._threads, progress, metrics)
        self._newest = step
        if self.after is not None:
            self.after(entry, after, flat)

    def _check_reentry(self, frame: FrameType) -> None:
        if self._saves_above(frame):
            raise CkptzError("a save of this thread is still under way")

    def _saves_above(self, frame: FrameType) -> bool:
        """Whether a caller of this frame is a save of this object.

        The lock is the thread's own, so a signal handler or the progress callback gets past it.
        A flag might stay behind when an interrupt comes at the wrong moment.
        """
        above = frame.f_back
        while above is not None:
            if above.f_code in _SAVES and above.f_locals.get("self") is self:
                return True
            above = above.f_back
        return False

    def _begin_writing(self, all_files: bool = False) -> None:
        storage = self._store.storage
        if not storage.locked:
            storage.create()
            storage.lock()
            storage.remove_unfinished()
        storage.remove_own_unfinished()
        self._store.refresh(alone=True, all_files=all_files)
        check_alone(self._store)

    def _predecessor(self, step: int, overwrite: bool) -> Entry | None:
        """Check a step against the line; return the snapshot that the line goes on from."""
        steps = self._store.steps(self._writer.tip)
        if step in steps and not overwrite:
            self._reader.confirm(steps[step])
            steps = self._store.steps(self._writer.tip)
        newest = max(steps, default=-1)
        if step in steps and not overwrite:
            raise StepExistsError(
                f"{self._store.storage}: step {step} is there already; save it with "
                "overwrite=True to replace it"
            )
        if newest > step and not overwrite:
            raise StepOrderError(
                f"{self._store.storage}: step {step} is not above the newest, {newest}; go back "
                f"with restore(STEP, rewind=True) first"
            )
        earlier = [generations for number, generations in steps.items() if number <= step]
        return earlier[-1][0] if earlier else None

    def rewind(self, entry: Entry) -> None:
        """Go on from an older snapshot."""
        self._check_reentry(sys._getframe())
        with self._saving:
            self.background.join()
            self._newest = None
            self._writer.rewind(entry)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Be the store's writer, with the store as it is now, for something else than a save."""
        self._check_reentry(sys._getframe())
        with self._saving:
            if self.closed:
                raise ValueError("this manager is closed")
            self.background.join()
            if not self._store.storage.exists():
                raise MissingSnapshotError(f"{self._store.storage}: there is no store")
            self._newest = None
            self._begin_writing(all_files=True)
            yield

    def wait(self, timeout: float | None = None) -> None:
        """Wait for what is under way. Raises `TimeoutError`, or the error of the last save."""
        last = self.background.last
        if last is not None and not (last.reported and last.done):
            last.wait(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Finish what is under way and let go of the store."""
        self.closed = True
        if self._saves_above(sys._getframe()):
            # The save does the rest at its end.
            return
        with self._saving:
            if not self.background.join(timeout):
                step = self.background.last.step if self.background.last else "?"
                raise TimeoutError(f"the save of step {step} is still under way")
            self._let_go()
        self.background.report()

    def _let_go(self) -> None:
        self._store.storage.unlock()
        self._writer.forget_base()
        self._staging.release()


_SAVES = (Saver.save.__code__, Saver._finish.__code__)
