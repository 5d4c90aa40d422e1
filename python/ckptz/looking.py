"""The part of `CheckpointManager` that looks at steps without bringing a whole state back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from .errors import MissingSnapshotError
from .keeping import KeepsSteps
from .reader import SnapshotReader
from .store import Entry

if TYPE_CHECKING:  # Imported where they are used: not every run asks for them.
    from .stats import SnapshotStats
    from .verify import VerifyReport
    from .view import Snapshot

__all__ = ["LooksAtSteps", "Progress"]

Progress = Callable[[int], None]
_T = TypeVar("_T")


class LooksAtSteps(KeepsSteps):
    """Opens, describes and checks steps; a base of `CheckpointManager`."""

    _reader: SnapshotReader
    _threads: int

    def _use(self, step: int | None, use: Callable[[Entry, bool], _T]) -> tuple[Entry, _T]:
        """Use a step (the newest) that is good; say so where it is about to be."""
        wanted, last = self._wanted(step), self._saver.background.last
        try:
            return self._reader.use(wanted, self._writer.tip, use)
        except MissingSnapshotError as error:
            if last is None or last.done or wanted not in (None, last.step):
                raise
            text = f"{error}; step {last.step} is being saved, wait() for it first"
            raise MissingSnapshotError(text) from error

    def open(
        self, step: int | None = None, *, as_numpy: bool = False, residual: bool = True
    ) -> Snapshot:
        """Return a read-only mapping from key paths to lazy tensors of a step (the newest).

        as_numpy and residual: as in `restore`.
        """
        from .view import Snapshot

        def use(entry: Entry, look_again: bool) -> Snapshot:
            return Snapshot(self._reader.open(entry, look_again, residual), as_numpy)

        return self._use(step, use)[1]

    def stats(self, step: int | None = None) -> SnapshotStats:
        """Return what a step (the newest) takes, and what its record headers say."""
        from .stats import snapshot_stats

        use = lambda entry, _: snapshot_stats(self._store, entry)  # noqa: E731
        return self._use(step, use)[1]

    def verify(self, *, progress: Progress | None = None) -> VerifyReport:
        """Check every byte and every decoded chunk of every snapshot against its checksum.

        Raises nothing for damage: the report names it.
        """
        from .verify import verify_store

        self._check_process()
        return verify_store(self._store, self._threads, progress, self._writer.tip)

    def reload(self) -> None:
        """See what a running writer has committed since."""
        self._check_process()
        self._store.refresh()
