"""The main entrance: `CheckpointManager`."""

from __future__ import annotations

import operator
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any, Literal

from . import codec
from .errors import (
    CkptzError,
    FormatError,
    MissingKeyError,
    StepExistsError,
    StepOrderError,
    warn,
)
from .flat import Keys, read_as
from .policy import Policy, Rule
from .reader import SnapshotReader
from .snapshot import LARGEST_STEP
from .state import flatten
from .stats import SnapshotStats, snapshot_stats
from .storage import LocalStorage
from .store import Entry, Store
from .verify import VerifyReport, verify_store
from .view import Snapshot
from .writer import SnapshotWriter

__all__ = ["CheckpointManager"]

Progress = Callable[[int], None]


class CheckpointManager:
    """Saves a training run's states into a store, and brings any of them back.

    A context manager. One may be used from many threads: one save at a time, restores beside it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        policy: Policy | Rule | Sequence[Rule] | str | None = None,
        *,
        exact: Literal["latest", "none"] = "latest",
        full_every: int = 50,
        threads: int | None = None,
        readonly: bool = False,
    ) -> None:
        """Open the store in the directory `path`, which a first save makes.

        policy: None goes on with the store's own ("lossy" for a new one). exact: "latest" keeps
        the newest snapshot bit for bit, "none" saves what that costs. full_every: a full snapshot
        every so many saves, 0: only where a delta cannot be. threads: None takes
        `CKPTZ_NUM_THREADS`, or the cores there are. readonly: takes no lock and writes nothing.
        Raises `PolicyError` and `ValueError` for what cannot be, `OSError` from the disk.
        """
        if exact not in ("latest", "none"):
            raise ValueError(f"exact={exact!r} is not 'latest' or 'none'")
        if type(full_every) is not int or full_every < 0:
            raise ValueError(f"full_every={full_every!r} is not an integer from 0 up")
        self._store = Store(LocalStorage(path))
        self._threads = codec.default_threads(threads)
        self._reader = SnapshotReader(self._store, self._threads)
        self._readonly = readonly
        self._closed = False
        self._saving = threading.RLock()
        if readonly and not self._store.storage.exists():
            raise FileNotFoundError(f"{path}: there is no store to read")
        self._store.refresh()
        found = self._stored_policy() if policy is None else Policy.of(policy)
        self._writer = SnapshotWriter(self._store, found, exact == "latest", full_every)

    def _stored_policy(self) -> Policy:
        try:
            return self._store.policy() or Policy.lossy()
        except FormatError as error:
            warn(f"going on with the policy 'lossy': {error}")
            return Policy.lossy()

    @property
    def path(self) -> str:
        """The store's directory."""
        return str(self._store.storage)

    @property
    def policy(self) -> Policy:
        """The policy of the next snapshot."""
        return self._writer.policy

    def save(
        self,
        step: int,
        state: object,
        *,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Save a state as the snapshot of `step`; durable when this returns.

        state: nested dicts, lists and tuples of arrays (NumPy, torch on the CPU) and plain
        values; it is not changed, and must not be by others until this returns. Steps rise along
        a line. overwrite: save a step that is there already as a new generation; later steps
        leave the line. progress: called with numbers of bytes written. Raises `StepExistsError`,
        `StepOrderError`, `StoreLockedError`, `StateChangedError` (where a change was noticed),
        `UnsupportedTypeError` (naming the key path), or `OSError`; nothing is lost then.
        """
        with self._saving:
            self._check_writable()
            number = self._check_step(step)
            flat = flatten(state)
            try:
                self._begin_writing()
                after = self._predecessor(number, overwrite)
                self._writer.write(number, flat, after, self._threads, progress)
            finally:
                if self._closed:
                    self._let_go()

    def _check_writable(self) -> None:
        if self._closed:
            raise ValueError("this manager is closed")
        if self._readonly:
            raise ValueError("this manager is read-only")
        if self._saves_above(sys._getframe(1)):
            raise CkptzError("a save of this thread is still under way")

    def _saves_above(self, frame: FrameType) -> bool:
        """Whether a caller of this frame is a save of this manager.

        The lock is the thread's own, so a signal handler or the progress callback gets past it.
        A flag might stay behind when an interrupt comes at the wrong moment.
        """
        above = frame.f_back
        while above is not None:
            if above.f_code is _SAVE and above.f_locals.get("self") is self:
                return True
            above = above.f_back
        return False

    @staticmethod
    def _check_step(step: Any) -> int:
        try:
            number = -1 if isinstance(step, bool) else int(operator.index(step))
        except TypeError:
            number = -1
        if not 0 <= number <= LARGEST_STEP:
            raise ValueError(f"step={step!r} is not an integer from 0 to 2^63 - 1")
        return number

    def _wanted(self, step: int | None) -> int | None:
        return None if step is None else self._check_step(step)

    def _begin_writing(self) -> None:
        storage = self._store.storage
        if not storage.locked:
            storage.create()
            storage.lock()
            storage.remove_unfinished()
        storage.remove_own_unfinished()
        self._store.refresh(alone=True)

    def _predecessor(self, step: int, overwrite: bool) -> Entry | None:
        """Check a step against the line; return the snapshot that the line goes on from."""
        steps = self._store.steps(self._writer.tip)
        if step in steps and not overwrite:
            self._reader.confirm(steps[step])
            steps = self._store.steps(self._writer.tip)
        newest = max(steps, default=-1)
        if step in steps and not overwrite:
            raise StepExistsError(
                f"{self.path}: step {step} is there already; save it with overwrite=True "
                "to replace it"
            )
        if newest > step and not overwrite:
            raise StepOrderError(
                f"{self.path}: step {step} is not above the newest, {newest}; go back with "
                f"restore(STEP, rewind=True) first"
            )
        earlier = [generations for number, generations in steps.items() if number <= step]
        return earlier[-1][0] if earlier else None

    def restore(
        self,
        step: int | None = None,
        *,
        keys: Keys | None = None,
        like: object = None,
        cast: bool = False,
        as_numpy: bool = False,
        types: Sequence[type] = (),
        rewind: bool = False,
        residual: bool = True,
        progress: Progress | None = None,
    ) -> Any:
        """Return the state of a step, or of the newest good snapshot, in fresh memory.

        Bit for bit as it was stored; the newest one (with `exact="latest"`) as it was saved. A
        damaged newest snapshot is skipped with a warning. keys: a glob of key paths, or several:
        a flat dict of the leaves that match. like: a template whose structure the state gets;
        leaves are found by key path, those of the snapshot that it lacks are left out. An array
        of another shape or dtype than the template's raises `MismatchError`; cast: convert dtypes
        (but never to integers what is none). as_numpy: NumPy arrays for torch tensors. types:
        classes of named tuples. rewind: go on saving from here; later steps leave the line at the
        next save. residual: False gives the newest snapshot as it will be once it is history.
        Raises `MissingSnapshotError` for a step that is not there, `MissingKeyError` for keys, or
        `FormatError` naming file, tensor and offset.
        """
        if rewind and self._readonly:
            raise ValueError("rewind=True is for going on saving; this manager is read-only")
        read = read_as(keys, like, cast, as_numpy, types, progress)

        def use(entry: Entry, look_again: bool) -> Any:
            with self._reader.open(entry, look_again, residual) as chain:
                return read(chain)

        entry, state = self._reader.use(self._wanted(step), self._writer.tip, use)
        if keys is not None and not state:
            raise MissingKeyError(f"{self.path}: no key path matches {keys!r}")
        if rewind:
            with self._saving:
                self._writer.rewind(entry)
        return state

    def open(
        self, step: int | None = None, *, as_numpy: bool = False, residual: bool = True
    ) -> Snapshot:
        """Return a read-only mapping from key paths to lazy tensors of a step (the newest).

        as_numpy and residual: as in `restore`.
        """

        def use(entry: Entry, look_again: bool) -> Snapshot:
            return Snapshot(self._reader.open(entry, look_again, residual), as_numpy)

        return self._reader.use(self._wanted(step), self._writer.tip, use)[1]

    def all_steps(self) -> list[int]:
        """Return the steps that can be restored, in numeric order."""
        return list(self._store.steps(self._writer.tip))

    def latest_step(self) -> int | None:
        """Return the highest step that can be restored, None if there is none."""
        return max(self._store.steps(self._writer.tip), default=None)

    def stats(self, step: int | None = None) -> SnapshotStats:
        """Return what a step (the newest) takes, and what its record headers say."""
        use = lambda entry, _: snapshot_stats(self._store, entry)  # noqa: E731
        return self._reader.use(self._wanted(step), self._writer.tip, use)[1]

    def verify(self, *, progress: Progress | None = None) -> VerifyReport:
        """Check every byte and every decoded chunk of every snapshot against its checksum.

        Raises nothing for damage: the report names it.
        """
        return verify_store(self._store, self._threads, progress, self._writer.tip)

    def reload(self) -> None:
        """See what a running writer has committed since."""
        self._store.refresh()

    def close(self) -> None:
        """Let go of the store; further calls do nothing."""
        with self._saving:
            self._closed = True
            if not self._saves_above(sys._getframe()):
                self._let_go()

    def _let_go(self) -> None:
        self._store.storage.unlock()
        self._writer.forget_base()

    def __iter__(self) -> Iterator[int]:
        return iter(self.all_steps())

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"CheckpointManager({self.path!r}, steps={self.all_steps()})"


_SAVE = CheckpointManager.save.__code__
