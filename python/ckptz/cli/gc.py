"""`ckptz gc`: deletes what no kept step needs."""

from __future__ import annotations

import argparse
import errno
import os
from pathlib import Path

from .. import CheckpointManager, Collected
from ..catalog import Catalog
from ..errors import MissingSnapshotError
from .arguments import Commands, add_command, add_common, open_place, place, whole_number
from .console import Console
from .errors import UsageError
from .report import Outcome, count, size

__all__ = ["add_to", "run"]

_EPILOG = """\
Without --max-to-keep every step stays, and what goes is what no step needs: what a rewind has left
behind, older generations of a step, copies of files, and what a crash has left. Pinned steps stay
in any case, and so does the newest one whose entries are all finite. Files that cannot be read are
left alone.

examples:
  ckptz gc run.store --dry-run
  ckptz gc run.store --max-to-keep 5 --keep-period 1000
"""


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "gc",
        run,
        "delete what no kept step needs",
        "Delete the steps of a store that are not to be kept, and the files that no step needs.",
        _EPILOG,
    )
    parser.add_argument("store", type=place, metavar="STORE", help="folder or URL of a store")
    parser.add_argument("--dry-run", action="store_true", help="only tell what would go")
    parser.add_argument(
        "--max-to-keep", type=whole_number, metavar="N", help="keep so many of the newest steps"
    )
    parser.add_argument(
        "--keep-period", type=whole_number, metavar="N", help="keep the multiples of N as well"
    )
    parser.add_argument(
        "--keep-every-seconds",
        type=float,
        metavar="S",
        help="keep a step whenever S seconds have passed as well",
    )
    add_common(parser)


def run(options: argparse.Namespace, console: Console) -> Outcome:
    """Collect. Raises what the library raises, or `UsageError`."""
    store = options.store
    if isinstance(store, Path) and not store.is_dir():
        code = errno.ENOTDIR if store.exists() else errno.ENOENT
        raise OSError(code, os.strerror(code), str(store))
    if not Catalog.listed(open_place(store)):
        raise MissingSnapshotError(f"{store}: no snapshots in this folder")
    try:
        manager = CheckpointManager(
            store,
            max_to_keep=options.max_to_keep,
            keep_period=options.keep_period,
            keep_every_seconds=options.keep_every_seconds,
            threads=options.threads,
            readonly=options.dry_run,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    with manager:
        found = manager.gc(dry_run=options.dry_run)
        return _outcome(manager.path, found, options.dry_run)


def _outcome(store: str, found: Collected, dry_run: bool) -> Outcome:
    document: dict[str, object] = {
        "store": store,
        "dry_run": dry_run,
        "kept": found.kept,
        "dropped": found.dropped,
        "files": found.files,
        "bytes": found.bytes,
    }
    verb = "would delete" if dry_run else "deleted"
    lines = [f"{verb} {name}" for name in found.files]
    steps = count(len(found.dropped), "step")
    lines.append(
        f"{store}: {verb} {count(len(found.files), 'file')}, {size(found.bytes)}; "
        f"{steps} dropped, {len(found.kept):,} kept"
    )
    return Outcome(document, lines)
