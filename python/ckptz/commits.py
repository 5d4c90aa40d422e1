"""Which files are a store's snapshots: parts only with a commit (format.md, section 12)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .file import RESIDUAL_SUFFIX, Entry
from .share import COMMIT, PART, PART_SUFFIX, sequence_of
from .storage import Storage

__all__ = ["Joined", "join", "may_be_newest", "orphans", "own"]


class Joined(msgspec.Struct, frozen=True):
    """The files of a store, parts and commits put together."""

    entries: list[Entry] = msgspec.field(default_factory=list)
    """Snapshots and residuals; a part only with its commit."""
    dangling: list[Entry] = msgspec.field(default_factory=list)
    """Commits whose part is not there, or not to be read."""
    dead: list[Entry] = msgspec.field(default_factory=list)
    """Parts that can never be committed: another one has their sequence number."""

    def problems(self, storage: Storage) -> dict[str, str]:
        """Return what is wrong with commits, by name."""
        return {
            commit.name: f"{storage / commit.name}: its part {commit.share.name} is not there"
            for commit in self.dangling
            if commit.share is not None
        }


def join(found: list[Entry]) -> Joined:
    """Put the parts and commits among the files of a store together."""
    if all(entry.share is None for entry in found):
        return Joined(found)
    commits = {e.share: e for e in found if e.kind == COMMIT and e.share is not None}
    named = {(share.digest, share.nonce): commit for share, commit in commits.items()}
    nonces = {share.nonce for share in commits}
    taken = {commit.meta.sequence for commit in commits.values()}
    joined, there = Joined(), set()
    for entry in found:
        if entry.share is None:
            joined.entries.append(entry)
        elif entry.kind == PART:
            commit = named.get((entry.id, entry.share.nonce))
            if commit is not None:
                there.add(commit.share)
                joined.entries.append(msgspec.structs.replace(entry, commit=commit.listed))
            elif entry.meta.sequence in taken and entry.share.nonce not in nonces:
                joined.dead.append(entry)
    joined.dangling.extend(commits[share] for share in commits if share not in there)
    return joined


def may_be_newest(name: str) -> bool:
    """Whether a file that cannot be read may have a sequence number that nothing else tells."""
    return not name.endswith((RESIDUAL_SUFFIX, PART_SUFFIX)) and sequence_of(name) < 0


def own(snapshots: dict[bytes, Entry]) -> dict[bytes, Entry]:
    """Return the snapshots without what has been saved into the directory as a single file.

    That is full and without a policy; a store may begin with one, though.
    """
    parents = {entry.meta.parent for entry in snapshots.values()}
    found = {
        name: entry
        for name, entry in snapshots.items()
        if (meta := entry.meta).parent is not None or meta.policy is not None or name in parents
    }
    return found or snapshots


def orphans(snapshots: Mapping[bytes, Entry]) -> dict[bytes, bytes]:
    """Return the snapshots whose chain is not all there, each with the id that it ends for."""
    found: dict[bytes, bytes] = {}
    if {entry.meta.parent for entry in snapshots.values()} - snapshots.keys() <= {None}:
        return found
    for entry in sorted(snapshots.values(), key=lambda e: e.meta.sequence):
        parent = entry.meta.parent
        if parent is not None and (parent in found or parent not in snapshots):
            found[entry.id] = found.get(parent, parent)
    return found
