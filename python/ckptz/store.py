"""A directory of snapshots: which there are, which can be restored, and what that takes.

Everything is read from the files' contents; names are hints (format.md, section 10).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .errors import CkptzWarning, FormatError, MissingSnapshotError
from .file import RESIDUAL, FileReader, Stored
from .policy import Policy
from .schema import Schema
from .snapshot import Meta, schema_digest
from .storage import Listed, LocalStorage

__all__ = ["Entry", "Store"]

SUFFIX = ".ckptz"
RESIDUAL_SUFFIX = ".residual.ckptz"


@dataclass(frozen=True, slots=True)
class Entry:
    """A snapshot (or residual) in a file of the store."""

    listed: Listed
    kind: int
    stored: Stored
    payload_bytes: int

    @property
    def id(self) -> bytes:
        """Identity of the snapshot."""
        return self.stored.id

    @property
    def meta(self) -> Meta:
        """What is known of it."""
        return self.stored.meta

    @property
    def name(self) -> str:
        """Name of its file."""
        return self.listed.name

    @property
    def size(self) -> int:
        """Bytes of its file."""
        return self.listed.size


def file_name(step: int, identity: bytes, residual: bool = False) -> str:
    """Return the name under which a snapshot is written."""
    return f"{step:010d}-{identity[:8].hex()}{RESIDUAL_SUFFIX if residual else SUFFIX}"


class Store:
    """The snapshots of a directory, as of the last `refresh`."""

    def __init__(self, storage: LocalStorage) -> None:
        """Name the directory; `refresh` reads it."""
        self.storage = storage
        self.entries: dict[bytes, Entry] = {}
        self.residuals: dict[bytes, Entry] = {}
        self._files: dict[Listed, Entry | None] = {}
        self._schemas: dict[bytes, Schema] = {}
        self._damaged: set[bytes] = set()
        self.problems: dict[str, str] = {}

    def refresh(self) -> None:
        """Read what has been added, and forget what is gone. Warns of files that are no use."""
        listed = [one for one in self.storage.names() if one.name.endswith(SUFFIX)]
        names = {one.name for one in listed}
        self.problems = {name: text for name, text in self.problems.items() if name in names}
        self._files = {one: self._load(one) for one in listed}
        snapshots: dict[bytes, Entry] = {}
        residuals: dict[bytes, Entry] = {}
        for entry in self._files.values():
            if entry is None:
                continue
            if entry.kind == RESIDUAL and entry.meta.parent is not None:
                residuals[entry.meta.parent] = entry
            elif entry.kind != RESIDUAL:
                snapshots[entry.id] = entry
        self.entries, self.residuals = snapshots, residuals

    def _load(self, listed: Listed) -> Entry | None:
        if listed in self._files:
            return self._files[listed]
        try:
            with self.storage.open(listed.name) as source:
                file = FileReader(source)
        except FileNotFoundError:
            return None
        except (FormatError, OSError) as error:
            self.problems[listed.name] = str(error)
            warnings.warn(f"skipped: {error}", CkptzWarning, stacklevel=5)
            return None
        return Entry(listed, file.kind, file.snapshots[0], file.payload_bytes)

    def mark_damaged(self, entry: Entry, error: Exception | None = None) -> None:
        """Remember that an entry, or the ancestor that the error names, cannot be restored.

        Until the store is opened anew.
        """
        culprit = error.snapshot if isinstance(error, FormatError) else None
        self._damaged.add(culprit if culprit in self.entries else entry.id)

    @property
    def last_sequence(self) -> int:
        """Highest sequence number in the store; -1 if it is empty."""
        found = (entry.meta.sequence for entry in self.entries.values())
        return max(found, default=-1)

    def newest(self) -> Entry | None:
        """Return the snapshot that was committed last."""
        return max(self.entries.values(), key=lambda e: (e.meta.sequence, e.id), default=None)

    def line(self, tip: Entry | None = None) -> list[Entry]:
        """Return a snapshot (the newest) and what came before it on its line, newest first."""
        tip = tip or self.newest()
        if tip is None:
            return []
        rewound = tip.meta.rewound
        found = [
            entry
            for entry in self.entries.values()
            if entry.meta.sequence <= tip.meta.sequence
            and not any(first <= entry.meta.sequence <= last for first, last in rewound)
        ]
        return sorted(found, key=lambda e: (e.meta.sequence, e.id), reverse=True)

    def can_restore(self, entry: Entry) -> bool:
        """Whether all that a snapshot needs is there and not known to be damaged."""
        seen = set()
        while entry.id not in self._damaged and entry.id not in seen:
            seen.add(entry.id)
            if entry.meta.parent is None:
                return True
            parent = self.entries.get(entry.meta.parent)
            if parent is None:
                return False
            entry = parent
        return False

    def restorable(self, tip: Entry | None = None) -> Iterator[Entry]:
        """Yield what can be restored on the line of `tip`, newest first."""
        good: dict[bytes, bool] = {}
        line = self.line(tip)
        for entry in reversed(line):
            parent = entry.meta.parent
            known = True if parent is None else good.get(parent)
            if known is None:
                known = self.can_restore(entry)
            good[entry.id] = known and entry.id not in self._damaged
        return (entry for entry in line if good[entry.id])

    def steps(self, tip: Entry | None = None) -> dict[int, list[Entry]]:
        """Return the restorable steps in numeric order, each with its generations, best first."""
        found: dict[int, list[Entry]] = {}
        for entry in self.restorable(tip):
            found.setdefault(entry.meta.step, []).append(entry)
        return dict(sorted(found.items()))

    def at(self, step: int, tip: Entry | None = None) -> list[Entry]:
        """Return the generations of a step, or raise `MissingSnapshotError`."""
        steps = self.steps(tip)
        if step not in steps:
            raise MissingSnapshotError(
                f"{self.storage}: no snapshot of step {step} can be restored; "
                f"there are {_shown(steps)}"
            )
        return steps[step]

    def chain(self, entry: Entry) -> list[Entry]:
        """Return the snapshots from a full one to `entry`. Raises `MissingSnapshotError`."""
        chain = [entry]
        seen = {entry.id}
        while (parent := chain[-1].meta.parent) is not None:
            found = self.entries.get(parent)
            if found is None or parent in seen:
                raise MissingSnapshotError(
                    f"{self.storage / chain[-1].name}: needs snapshot {parent.hex()}, "
                    "which the store does not hold"
                )
            seen.add(parent)
            chain.append(found)
        return chain[::-1]

    def schema(self, entry: Entry, chain: Iterable[Entry] = ()) -> Schema:
        """Return the schema of an entry, which it or an earlier one of its chain holds."""
        name = entry.meta.schema
        known = self._schemas.get(name)
        if known is not None:
            return known
        for holder in (entry, *chain, *self.entries.values()):
            blob = holder.stored.schema
            if blob is not None and holder.meta.schema == name:
                if schema_digest(blob) != name:
                    raise FormatError(f"{self.storage / holder.name}: a schema under a false name")
                try:
                    self._schemas[name] = Schema.parse(blob)
                except FormatError as error:
                    raise FormatError(f"{self.storage / holder.name}: {error}") from error
                return self._schemas[name]
        raise MissingSnapshotError(
            f"{self.storage / entry.name}: no file of the store holds its schema {name.hex()}"
        )

    def policy(self, entry: Entry | None = None) -> Policy | None:
        """Return the policy that a snapshot (the newest) was saved under."""
        found = entry or self.newest()
        seen = set()
        while found is not None and found.id not in seen:
            if found.meta.policy is not None:
                return Policy.from_builtins(found.meta.policy)
            seen.add(found.id)
            found = self.entries.get(found.meta.parent or b"")
        return None


def _shown(steps: Iterable[int]) -> str:
    numbers = list(steps)
    if not numbers:
        return "none"
    if len(numbers) > 8:
        return f"{', '.join(map(str, numbers[:4]))}, .. {', '.join(map(str, numbers[-3:]))}"
    return ", ".join(map(str, numbers))


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a directory holds at least one file that a store would have."""
    names = LocalStorage(path).names()
    return any(one.name.endswith(SUFFIX) for one in names)
