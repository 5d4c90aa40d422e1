"""The main entrance: `CheckpointManager`."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar

from . import codec
from .errors import (
    CkptzWarning,
    FormatError,
    MissingSnapshotError,
    StepExistsError,
    StepOrderError,
)
from .flat import Keys, flat_state
from .messagepack import decode_values
from .policy import Policy, Rule
from .restore import OpenChain
from .snapshot import LARGEST_STEP
from .state import flatten, unflatten
from .stats import SnapshotStats, snapshot_stats
from .storage import LocalStorage
from .store import Entry, Store
from .verify import VerifyReport, verify_store
from .view import Snapshot
from .writer import SnapshotWriter

__all__ = ["CheckpointManager"]

Progress = Callable[[int], None]
_T = TypeVar("_T")


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
            warnings.warn(f"going on with the policy 'lossy': {error}", CkptzWarning, stacklevel=3)
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
        values; it is not changed. Steps rise along a line. overwrite: save a step that is there
        already as a new generation; later steps leave the line. progress: called with numbers of
        bytes written. Raises `StepExistsError`, `StepOrderError`, `StoreLockedError`,
        `UnsupportedTypeError` (naming the key path), or `OSError`; nothing is lost then.
        """
        with self._saving:
            self._check_writable()
            self._check_step(step)
            self._begin_writing()
            leave = self._leaving(step, overwrite)
            self._writer.write(step, flatten(state), leave, self._threads, progress)

    def _check_writable(self) -> None:
        if self._closed:
            raise ValueError("this manager is closed")
        if self._readonly:
            raise ValueError("this manager is read-only")

    def _check_step(self, step: object) -> None:
        if type(step) is not int or not 0 <= step <= LARGEST_STEP:
            raise ValueError(f"step={step!r} is not an integer from 0 to 2^63 - 1")

    def _begin_writing(self) -> None:
        storage = self._store.storage
        if not storage.locked:
            storage.create()
            storage.lock()
            storage.remove_unfinished()
        self._store.refresh()

    def _leaving(self, step: int, overwrite: bool) -> list[int]:
        """Check the step against the line; return the sequence numbers that leave it."""
        steps = self._store.steps(self._writer.tip)
        if steps and step in steps and not overwrite:
            self._writer.confirm(steps[step], self._threads)
            steps = self._store.steps(self._writer.tip)
        if step in steps and not overwrite:
            raise StepExistsError(
                f"{self.path}: step {step} is there already; save it with overwrite=True "
                "to replace it"
            )
        later = [entry for s, entries in steps.items() if s > step for entry in entries]
        if later and not overwrite:
            newest = max(steps)
            raise StepOrderError(
                f"{self.path}: step {step} is not above the newest, {newest}; go back with "
                f"restore(STEP, rewind=True) first"
            )
        return [entry.meta.sequence for entry in later]

    def restore(
        self,
        step: int | None = None,
        *,
        keys: Keys | None = None,
        as_numpy: bool = False,
        types: Sequence[type] = (),
        rewind: bool = False,
        residual: bool = True,
        progress: Progress | None = None,
    ) -> Any:
        """Return the state of a step, or of the newest good snapshot, in fresh memory.

        Bit for bit as it was stored; the newest one (with `exact="latest"`) as it was saved. A
        damaged newest snapshot is skipped with a warning. keys: a glob of key paths, or several:
        a flat dict of the leaves that match. as_numpy: NumPy arrays for torch tensors. types:
        classes of named tuples. rewind: go on saving from here; later steps leave the line at the
        next save. residual: False gives the newest snapshot as it will be once it is history.
        Raises `MissingSnapshotError`, or `FormatError` naming file, tensor and offset.
        """
        entry, state = self._with_good(
            step, lambda entry: self._restore(entry, keys, as_numpy, types, residual, progress)
        )
        if keys is not None and not state:
            raise MissingSnapshotError(f"{self.path}: no key path matches {keys!r}")
        if rewind:
            with self._saving:
                self._writer.rewind(entry)
        return state

    def _with_good(self, step: int | None, use: Callable[[Entry], _T]) -> tuple[Entry, _T]:
        """Use the best generation of a step, or the newest snapshot that can be used."""
        tip = self._writer.tip
        if step is None:
            entries = list(self._store.restorable(tip))
        else:
            self._check_step(step)
            entries = self._store.at(step, tip)
        failed: Exception | None = None
        for entry in entries:
            if not self._store.can_restore(entry):
                continue
            if failed is not None:
                warnings.warn(
                    f"taking step {entry.meta.step}: {failed}", CkptzWarning, stacklevel=4
                )
            try:
                return entry, use(entry)
            except (FormatError, MissingSnapshotError) as error:
                self._store.mark_damaged(entry, error)
                failed = error
            except FileNotFoundError as error:
                failed = error
        raise failed or MissingSnapshotError(f"{self.path}: no snapshot can be restored")

    def _restore(
        self,
        entry: Entry,
        keys: Keys | None,
        as_numpy: bool,
        types: Sequence[type],
        residual: bool,
        progress: Progress | None,
    ) -> Any:
        with self._open_chain(entry, residual) as chain:
            values = decode_values(chain.values)
            if keys is not None:
                return flat_state(chain, values, keys, as_numpy, progress)
            arrays = chain.arrays(progress=progress)
            return unflatten(chain.schema, arrays, values, as_numpy=as_numpy, types=types)

    def _open_chain(self, entry: Entry, residual: bool = True) -> OpenChain:
        """Open the files of a snapshot, with its residual if that is there and wanted."""
        found = self._store.residuals.get(entry.id) if residual else None
        return OpenChain.of_store(self._store, entry, residual=found, threads=self._threads)

    def open(self, step: int | None = None, *, as_numpy: bool = False) -> Snapshot:
        """Return a read-only mapping from key paths to lazy tensors of a step (the newest)."""
        use = lambda entry: Snapshot(self._open_chain(entry), as_numpy)  # noqa: E731
        return self._with_good(step, use)[1]

    def all_steps(self) -> list[int]:
        """Return the steps that can be restored, in numeric order."""
        return list(self._store.steps(self._writer.tip))

    def latest_step(self) -> int | None:
        """Return the highest step that can be restored, None if there is none."""
        return max(self._store.steps(self._writer.tip), default=None)

    def stats(self, step: int | None = None) -> SnapshotStats:
        """Return what a step (the newest) takes, and what its record headers say."""
        entries = list(self._store.restorable(self._writer.tip))
        if step is not None:
            self._check_step(step)
            entries = self._store.at(step, self._writer.tip)
        if not entries:
            raise MissingSnapshotError(f"{self.path}: no snapshot can be restored")
        return snapshot_stats(self._store, entries[0])

    def verify(self, *, progress: Progress | None = None) -> VerifyReport:
        """Check every byte and every decoded chunk of every snapshot against its checksum.

        Raises nothing for damage: the report names it.
        """
        return verify_store(self._store, self._threads, progress)

    def reload(self) -> None:
        """See what a running writer has committed since."""
        self._store.refresh()

    def close(self) -> None:
        """Let go of the store; further calls do nothing."""
        with self._saving:
            self._closed = True
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
