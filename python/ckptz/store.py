"""A directory of snapshots: which there are, which can be restored, and what that takes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from .errors import FormatError, MissingSnapshotError, some
from .file import RESIDUAL, SUFFIX, Entry, FileReader, file_name
from .index import Index
from .metadata import Stored
from .policy import Policy
from .schema import Schema
from .snapshot import schema_digest
from .storage import Storage

__all__ = ["SUFFIX", "Entry", "Store", "file_name"]


class Store(Index):
    """The snapshots of a storage, as of the last `refresh`. Many threads may use one."""

    def __init__(self, storage: Storage) -> None:
        """Name the storage; `refresh` reads it."""
        super().__init__(storage)
        self._schemas: dict[bytes, Schema] = {}
        # Steps of the newest line, and the entries that they were found among.
        self._steps: tuple[dict[bytes, Entry], dict[int, list[Entry]]] = ({}, {})

    def residual_names(self, kept: Collection[bytes]) -> list[str]:
        """Return the names of residuals of all but some and later snapshots, copies included.

        A damaged one does not say whose it is, but where the name tells it is believed.
        """
        last = self.last_sequence
        found = [
            entry.name
            for entry in self.catalog.entries()
            if entry.kind == RESIDUAL
            and entry.meta.parent not in kept
            # Another writer may have begun with the next snapshot.
            and entry.meta.sequence <= last
        ]
        owners = [entry for entry in self.entries.values() if entry.id not in kept]
        if self.problems:
            names = {file_name(entry.meta.step, entry.id, residual=True) for entry in owners}
            found += names.intersection(self.problems)
        return found

    def reason(self, step: int) -> str:
        """Return what is known to be wrong with files of a step, as text to go on with."""
        found = [
            text
            for (_, one), text in self._damaged.items()
            if text and (entry := self.entries.get(one)) and entry.meta.step == step
        ]
        prefix = f"{step:010d}-"
        found += [text for name, text in self.problems.items() if name.startswith(prefix)]
        return "".join(f"; {text}" for text in found)

    def closure(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return snapshots and their ancestors, as far as they are there."""
        found: set[bytes] = set()
        todo = list(ids)
        while todo:
            entry = self.entries.get(todo.pop())
            if entry is not None and entry.id not in found:
                found.add(entry.id)
                todo.append(entry.meta.parent or b"")
        return found

    def can_restore(self, entry: Entry) -> bool:
        """Whether all that a snapshot needs is there and not known to be damaged."""
        chain = list(self.ancestors(entry))
        return chain[-1].meta.full and not any(layer.key in self._damaged for layer in chain)

    def restorable(self, tip: Entry | None = None) -> Iterator[Entry]:
        """Yield the steps that can be restored on the line of `tip`, newest first."""
        good: dict[bytes, bool] = {}
        line = self.line(tip)
        for entry in reversed(line):
            parent = entry.meta.parent
            known = True if parent is None else good.get(parent)
            if known is None:
                known = self.can_restore(entry)
            good[entry.id] = known and entry.key not in self._damaged
        return (entry for entry in line if good[entry.id] and entry.id not in self.hidden)

    def steps(self, tip: Entry | None = None) -> dict[int, list[Entry]]:
        """Return the restorable steps in numeric order, each with its generations, best first.

        What is returned is not to be changed.
        """
        entries = self.entries
        if tip is None and self._steps[0] is entries:
            return self._steps[1]
        found: dict[int, list[Entry]] = {}
        for entry in self.restorable(tip):
            found.setdefault(entry.meta.step, []).append(entry)
        found = dict(sorted(found.items()))
        if tip is None:
            self._steps = entries, found
        return found

    def pinned_steps(self, tip: Entry | None = None) -> dict[int, Entry]:
        """Return the steps with a pinned generation, each as its best one, in numeric order."""
        pinned = self.pinned
        steps = self.steps(tip).items() if pinned else ()
        return {n: found[0] for n, found in steps if any(e.id in pinned for e in found)}

    def at(self, step: int, tip: Entry | None = None) -> list[Entry]:
        """Return the generations of a step, or raise `MissingSnapshotError`."""
        steps = self.steps(tip)
        if step not in steps:
            raise MissingSnapshotError(
                f"{self.storage}: no snapshot of step {step} can be restored; "
                f"there are {some(steps)}{self.reason(step)}"
            )
        return steps[step]

    def chain(self, entry: Entry) -> list[Entry]:
        """Return the snapshots from a full one to `entry`. Raises `MissingSnapshotError`."""
        chain = list(self.ancestors(entry))
        parent = chain[-1].meta.parent
        if parent is not None:
            raise MissingSnapshotError(
                f"{self.storage / chain[-1].name}: needs snapshot {parent.hex()}, "
                "which the store does not hold"
            )
        return chain[::-1]

    def stored(self, entry: Entry) -> Stored:
        """Read all that is known of a snapshot. Raises `FormatError` or `OSError`."""
        with self.storage.open(entry.name) as source:
            return entry.check(FileReader(source))

    def schema(self, entry: Entry, chain: Iterable[Entry] = ()) -> Schema:
        """Return the schema of an entry, which it or an earlier one of its chain holds."""
        name = entry.meta.schema
        known = self._schemas.get(name)
        if known is not None:
            return known
        for holder in (entry, *chain, *self.catalog.entries()):
            if holder.holds_schema and holder.meta.schema == name:
                self._schemas[name] = self._parse(holder, self.stored(holder).schema or b"")
                return self._schemas[name]
        raise MissingSnapshotError(
            f"{self.storage / entry.name}: no file of the store holds its schema {name.hex()}"
        )

    def _parse(self, holder: Entry, blob: bytes) -> Schema:
        try:
            if schema_digest(blob) != holder.meta.schema:
                raise FormatError("a schema under a false name")
            return Schema.parse(blob)
        except FormatError as error:
            named = FormatError(f"{self.storage / holder.name}: {error}")
            named.snapshot = holder.id
            raise named from error

    def policy(self, entry: Entry | None = None) -> Policy | None:
        """Return the policy that a snapshot (the newest) was saved under. Raises `FormatError`."""
        entry = entry or self.newest()
        for holder in [] if entry is None else self.ancestors(entry):
            if holder.meta.policy is not None:
                try:
                    return Policy.from_builtins(holder.meta.policy)
                except FormatError as error:
                    raise FormatError(f"{self.storage / holder.name}: {error}") from error
        return None
