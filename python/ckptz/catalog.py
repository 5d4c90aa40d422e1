"""What the files of a store hold, as of one listing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from .commits import Joined, join
from .errors import FormatError, UnknownVersionError
from .file import RESIDUAL_SUFFIX, SUFFIX, Entry, FileReader
from .marks import HIDDEN, PIN, Mark, read_mark
from .share import COMMIT
from .storage import NO_FILES, Listed, Storage, is_shortage

__all__ = ["Catalog"]

_Read = Callable[[], "Mark | tuple[Entry, ...]"]


class Catalog(msgspec.Struct):
    """Entries and marks by file, and what is wrong with the files that have none.

    Never changed once it has been read: other threads may be looking at it.
    """

    files: dict[Listed, tuple[Entry, ...]] = msgspec.field(default_factory=dict)
    """As they are: parts and commits apart."""
    joined: Joined = msgspec.field(default_factory=Joined)
    """What these files are together."""
    marks: dict[Listed, Mark] = msgspec.field(default_factory=dict)
    bad: dict[Listed, str] = msgspec.field(default_factory=dict)
    """Files whose content is of no use."""
    problems: dict[str, str] = msgspec.field(default_factory=dict)
    """By name: of those, of files that could not be read, which may pass, and of lost parts."""
    unreadable: set[Listed] = msgspec.field(default_factory=set)
    """Files that may hold snapshots and could not be used."""

    @staticmethod
    def listed(storage: Storage, known: Mapping[str, Listed] = NO_FILES) -> list[Listed]:
        """List the files of a store; known: those that need not be looked at again."""
        found = storage.names(known)
        return [one for one in found if one.name.endswith((SUFFIX, PIN, HIDDEN))]

    @classmethod
    def read(cls, storage: Storage, listed: Sequence[Listed], known: Catalog) -> Catalog:
        """Read the files that are not known already."""
        made = cls()
        reads = {}
        for one in listed:
            # One after another, as a store has many files: nearly all are snapshots that are known.
            if (entries := known.files.get(one)) is not None:
                made.files[one] = entries
            elif (mark := known.marks.get(one)) is not None:
                made.marks[one] = mark
            elif (text := known.bad.get(one)) is not None:
                made._take_bad(one, text)
            else:
                reads[one] = storage.begin(partial(_read_file, storage, one))
        for one, read in reads.items():
            made._take_new(one, read)
        if reads:
            # Of copies the last one counts: in what order files came to be known must not matter.
            made.files = dict(sorted(made.files.items()))
        made.joined = join([entry for found in made.files.values() for entry in found])
        made.problems |= made.joined.problems(storage)
        return made

    def is_of(self, listed: Sequence[Listed]) -> bool:
        """Whether this is all that such a listing tells: nothing is new, and nothing gone."""
        count = len(self.files) + len(self.marks) + len(self.bad)
        return count == len(listed) and all(
            one in self.files or one in self.marks or one in self.bad for one in listed
        )

    def _take_new(self, one: Listed, read: _Read) -> None:
        try:
            found = read()
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
        else:
            if isinstance(found, Mark):
                self.marks[one] = found
            else:
                self.files[one] = found

    def _take_bad(self, one: Listed, text: str) -> None:
        self.bad[one] = text
        self._take_problem(one, text)

    def _take_problem(self, one: Listed, text: str) -> None:
        self.problems[one.name] = text
        if one.name.endswith(SUFFIX) and not one.name.endswith(RESIDUAL_SUFFIX):
            self.unreadable.add(one)

    def entries(self) -> list[Entry]:
        """Return all snapshots and residuals, copies included."""
        return self.joined.entries

    def by_file(self) -> dict[Listed, Entry]:
        """Return the last entry of each file, commits included, not parts that are no snapshots."""
        commits = (e for found in self.files.values() for e in found if e.kind == COMMIT)
        return {entry.listed: entry for entry in (*self.joined.entries, *commits)}


def _read_file(storage: Storage, one: Listed) -> Mark | tuple[Entry, ...]:
    if not one.name.endswith(SUFFIX):
        return read_mark(storage, one)
    with storage.open(one.name) as source:
        return Entry.all_of(one, FileReader(source))
