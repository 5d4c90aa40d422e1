"""`ckptz cp`: a store to another place, a folder or a URL either side."""

from __future__ import annotations

import argparse
import threading

from ..errors import MissingSnapshotError
from ..transfer import copy_store
from .arguments import Commands, add_command, add_common, open_place, place
from .console import Console
from .errors import DAMAGE, DONE, printable
from .report import Outcome, count, size

__all__ = ["add_to", "run"]

_EPILOG = """\
examples:
  ckptz cp run.store s3://bucket/run      URLs need obstore: pip install 'ckptz[obstore]'
  ckptz cp s3://bucket/run run.copy
  ckptz cp run.store /backup/run.store    again later: only what is new

Only what is missing is copied, so a copy that was interrupted goes on where it stopped. Every file
is checked against its checksums when it is read and again when it has been written. Files are not
replaced, and what only the destination has stays.

exit codes: 0 done; 1 files of the source are damaged and were left out; 2 usage; 3 something could
not be read or written
"""


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "cp",
        run,
        "copy a store to a folder or into an object store",
        "Copy a store: from a folder or URL to a folder or URL.",
        _EPILOG,
    )
    parser.add_argument("source", type=place, metavar="STORE", help="folder or URL of a store")
    parser.add_argument("destination", type=place, metavar="COPY", help="folder or URL")
    add_common(parser)


def run(options: argparse.Namespace, console: Console) -> Outcome:
    """Copy. Raises what the library raises, or `UsageError`."""
    source, destination = open_place(options.source), open_place(options.destination)
    listed = source.names()
    if not any(one.name.endswith(".ckptz") for one in listed):
        raise MissingSnapshotError(f"{source}: no snapshots in this folder")
    console.hint = "run it again to go on"
    console.hears_warnings = False  # the report says it
    with console.progress("copy", sum(one.size for one in listed)) as progress:
        several = threading.Lock()

        def advance(done: int) -> None:
            with several:
                progress.advance(done)

        done = copy_store(source, destination, advance)
    document: dict[str, object] = {
        "source": str(source),
        "destination": str(destination),
        "copied": done.files,
        "bytes": done.bytes,
        "there": done.there,
        "problems": [{"file": name, "what": what} for name, what in sorted(done.problems.items())],
    }
    lines = [f"left out: {printable(what)}" for _, what in sorted(done.problems.items())]
    there = f"; {count(done.there, 'file')} there already" if done.there else ""
    lines.append(f"{destination}: copied {count(done.files, 'file')}, {size(done.bytes)}{there}")
    return Outcome(document, lines, DAMAGE if done.problems else DONE)
