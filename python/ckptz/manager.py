"""The main entrance: `CheckpointManager`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NoReturn

from . import codec
from .background import SaveFuture
from .errors import FormatError, MissingKeyError, OtherProcessError, warn
from .flat import Keys, read_as
from .keeping import Keeper
from .looking import LooksAtSteps, Progress
from .loss import check_budget, check_metrics, warn_of_loss
from .policy import Policy, Rule
from .reader import SnapshotReader
from .reads import ReadLimit
from .retention import Retention
from .saving import Saver
from .signals import Drain
from .storage import open_storage
from .store import Entry, Store
from .writer import SnapshotWriter

__all__ = ["CheckpointManager"]


class CheckpointManager(LooksAtSteps):
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
        max_to_keep: int | None = None,
        keep_period: int | None = None,
        keep_every_seconds: float | None = None,
        best_fn: Callable[[Mapping[str, float]], float] | None = None,
        max_files: int | None = None,
        max_restore_bytes: int | None = None,
        loss_budget: int = 3,
        threads: int | None = None,
        readonly: bool = False,
    ) -> None:
        """Open the store at `path`, which a first save makes: a directory, or a URL for obstore.

        policy: None goes on with the store's own ("lossy" for a new one). exact: "latest" keeps
        the newest snapshot bit for bit, "none" saves what that costs. full_every: a full snapshot
        every so many saves, 0: only where a delta cannot be. max_to_keep: how many steps stay
        (None: all, whatever else is asked for), the newest and (with best_fn, a function of
        `metrics`) the best, beside those that are multiples of keep_period, one every
        keep_every_seconds, and pinned ones. max_files: how many files a restore reads at most, 3
        or more: deltas are merged to hold that. max_restore_bytes: how many bytes it reads at most,
        of whole files: where a delta would be beyond that a full snapshot is saved, with a warning
        if it is so itself; give it room for one, a residual and some deltas, or there will be no
        deltas. loss_budget: `restore` warns of a line that has been through more lossy restores
        since its last full snapshot. threads: None takes `CKPTZ_NUM_THREADS`, or the cores there
        are; 1 leaves the most to training beside asynchronous saves. readonly: takes no lock and
        writes nothing. Raises `PolicyError` and `ValueError` for what cannot be, `CkptzError` for
        max_files in an object store, `OSError` from the disk.
        """
        if exact not in ("latest", "none"):
            raise ValueError(f"exact={exact!r} is not 'latest' or 'none'")
        if type(full_every) is not int or full_every < 0:
            raise ValueError(f"full_every={full_every!r} is not an integer from 0 up")
        check_budget(loss_budget)
        self._loss_budget = loss_budget
        rules = Retention(max_to_keep, keep_period, keep_every_seconds, best_fn)
        self._store = Store(open_storage(path))
        self._process = os.getpid()
        self._threads = codec.default_threads(threads)
        self._reader = SnapshotReader(self._store, self._threads)
        self._readonly = readonly
        if readonly and not self._store.storage.exists():
            raise FileNotFoundError(f"{path}: there is no store to read")
        self._store.refresh()
        found = self._stored_policy() if policy is None else Policy.of(policy)
        limit = ReadLimit(self._store, max_restore_bytes, merges=max_files is not None)
        self._writer = SnapshotWriter(self._store, found, exact == "latest", full_every, limit)
        self._saver = Saver(self._store, self._reader, self._writer, self._threads)
        self._keeper = Keeper(self._store, self._writer, rules, max_files)
        self._saver.after = self._keeper.after_save
        self._drains: list[Drain] = []

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
        blocking: bool = True,
        on_busy: Literal["wait", "skip"] = "wait",
        overwrite: bool = False,
        metrics: Mapping[str, float] | None = None,
        progress: Progress | None = None,
    ) -> SaveFuture:
        """Save a state as the snapshot of `step`; durable when this returns.

        state: nested dicts, lists and tuples of arrays (NumPy, torch on the CPU) and plain
        values; it is not changed, and must not be by others until this returns. Steps rise along
        a line. blocking: False copies the state and returns; a thread saves the copy. An error of
        that is raised by the future's `wait`, or else by the next `save`, `wait` or `close`.
        on_busy: one save is under way at most; the next waits for it, or with "skip" does nothing
        and says so (`SaveFuture.skipped`). overwrite: save a step that is there already as a new
        generation; later steps leave the line. metrics: numbers by name that are recorded with
        it, for `best_fn`. progress: called with numbers of bytes written, by the thread that
        saves. Raises `StepExistsError`, `StepOrderError`, `StoreLockedError`,
        `StateChangedError` (where a change was noticed), `UnsupportedTypeError` (naming the key
        path), or `OSError`; nothing is lost then.
        """
        self._check_process()
        if on_busy not in ("wait", "skip"):
            raise ValueError(f"on_busy={on_busy!r} is not 'wait' or 'skip'")
        if self._readonly:
            raise ValueError("this manager is read-only")
        number = self._check_step(step)
        measured = check_metrics(metrics)
        self._keeper.rules.score(measured)  # the user's own mistakes, before anything is saved
        return self._saver.save(
            number,
            state,
            blocking=blocking,
            skip=on_busy == "skip",
            overwrite=overwrite,
            metrics=measured,
            progress=progress,
        )

    def wait(self, timeout: float | None = None) -> None:
        """Wait until what has been saved is durable.

        timeout: seconds. Raises `TimeoutError` after that, or the error of the last save.
        """
        self._check_process()
        self._saver.wait(timeout)

    def drain_on(self, signum: int = signal.SIGTERM, *, deadline: float = 30.0) -> None:
        """Have a signal wait for the save under way before it does what it did so far.

        For the main thread. The handler only makes a note; as soon as the save is durable, or
        after `deadline` seconds, the signal takes its course: a handler that was there before is
        called, else the process ends. Raises `ValueError` where there can be no handler.
        """
        self._check_process()
        self._drains.append(Drain(self._saver.background, signum, deadline))

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
        leaves are found by key path, those of the snapshot that it lacks are left out, a longer
        list's last items too; one that the snapshot lacks raises `MissingKeyError`. An array of
        another shape or dtype than the template's raises `MismatchError`; cast: convert dtypes
        (but never to integers what is none). as_numpy: NumPy arrays for torch tensors. types:
        classes of named tuples. rewind: go on saving from here; later steps leave the line at the
        next save. residual: False gives the newest snapshot as it will be once it is history.
        Raises `MissingSnapshotError` for a step that is not there, `MissingKeyError` for keys, or
        `FormatError` naming file, tensor and offset.
        """
        if rewind and self._readonly:
            raise ValueError("rewind=True is for going on saving; this manager is read-only")
        read = read_as(keys, like, cast, as_numpy, types, progress)

        def use(entry: Entry, look_again: bool) -> tuple[Any, bool]:
            with self._reader.open(entry, look_again, residual) as chain:
                return read(chain), chain.exact

        entry, (state, exact) = self._use(step, use)
        if keys is not None and not state:
            raise MissingKeyError(f"{self.path}: no key path matches {keys!r}")
        warn_of_loss(entry, exact, self._loss_budget)
        if rewind:
            self._saver.rewind(entry)
        self._writer.resumed(entry, exact, rewind)
        return state

    def close(self, timeout: float | None = None) -> None:
        """Finish the save under way and let go of the store; further calls do nothing.

        timeout: seconds; `TimeoutError` after that, and the store is let go of when the save is
        over. Raises the error of a save that nobody has been told of.
        """
        if self._process == os.getpid():
            self._saver.close(timeout)
            while self._drains:
                self._drains.pop().end()

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
        if kind is None:
            self.close()
            return
        try:
            self.close()
        except Exception as failed:
            # What is under way already is what the user must see.
            warn(f"the last save failed: {failed!r}")

    def __reduce__(self) -> NoReturn:
        raise OtherProcessError(
            f"a CheckpointManager ({self.path}) cannot be sent to another process; "
            "make one of its own there"
        )

    def __repr__(self) -> str:
        return f"CheckpointManager({self.path!r}, steps={self.all_steps()})"
