"""What the files of a directory hold, as of one listing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .errors import FormatError, UnknownVersionError
from .file import RESIDUAL_SUFFIX, SUFFIX, Entry, FileReader
from .marks import HIDDEN, PIN, Mark, read_mark
from .storage import Listed, LocalStorage, is_shortage

__all__ = ["Catalog", "own_snapshots"]


@dataclass(slots=True)
class Catalog:
    """Entries and marks by file, and what is wrong with the files that have none.

    Never changed once it has been read: other threads may be looking at it.
    """

    files: dict[Listed, tuple[Entry, ...]] = field(default_factory=dict)
    marks: dict[Listed, Mark] = field(default_factory=dict)
    bad: dict[Listed, str] = field(default_factory=dict)
    """Files whose content is of no use."""
    problems: dict[str, str] = field(default_factory=dict)
    """By name: of those, and of files that could not be read, which may pass."""
    unreadable: set[Listed] = field(default_factory=set)
    """Files that may hold snapshots and could not be used."""

    @staticmethod
    def listed(storage: LocalStorage) -> list[Listed]:
        """List the files of a store."""
        return [one for one in storage.names() if one.name.endswith((SUFFIX, PIN, HIDDEN))]

    @classmethod
    def read(cls, storage: LocalStorage, listed: Iterable[Listed], known: Catalog) -> Catalog:
        """Read the files that are not known already."""
        made = cls()
        for one in listed:
            made._load(storage, one, known)
        return made

    def _load(self, storage: LocalStorage, one: Listed, known: Catalog) -> None:
        if one in known.files:
            self.files[one] = known.files[one]
        elif one in known.marks:
            self.marks[one] = known.marks[one]
        elif one in known.bad:
            self._take_bad(one, known.bad[one])
        else:
            try:
                self._read_file(storage, one)
            except FileNotFoundError:
                return
            except UnknownVersionError:
                raise
            except FormatError as error:
                self._take_bad(one, str(error))
            except OSError as error:
                # Not remembered as the file's content is: the next look tries again.
                if is_shortage(error):
                    raise
                self._take_problem(one, str(error))

    def _read_file(self, storage: LocalStorage, one: Listed) -> None:
        if not one.name.endswith(SUFFIX):
            self.marks[one] = read_mark(storage, one)
            return
        with storage.open(one.name) as source:
            self.files[one] = Entry.all_of(one, FileReader(source))

    def _take_bad(self, one: Listed, text: str) -> None:
        self.bad[one] = text
        self._take_problem(one, text)

    def _take_problem(self, one: Listed, text: str) -> None:
        self.problems[one.name] = text
        if one.name.endswith(SUFFIX) and not one.name.endswith(RESIDUAL_SUFFIX):
            self.unreadable.add(one)

    def entries(self) -> Iterable[Entry]:
        """Yield what all files hold, copies included."""
        for found in self.files.values():
            yield from found


def own_snapshots(snapshots: dict[bytes, Entry]) -> dict[bytes, Entry]:
    """Return the snapshots without what has been saved into the directory as a single file.

    That is full and without a policy; a store may begin with one, though.
    """
    parents = {entry.meta.parent for entry in snapshots.values()}
    own = {
        found: entry
        for found, entry in snapshots.items()
        if not entry.meta.full or entry.meta.policy is not None or found in parents
    }
    return own or snapshots
