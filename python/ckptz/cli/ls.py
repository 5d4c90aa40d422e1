"""`ckptz ls`: the steps of a store, a line each."""

from __future__ import annotations

import argparse

from .arguments import Commands, add_command, add_common, add_source
from .console import Console
from .report import Outcome
from .rows import all_rows, as_json, as_table
from .source import Source

__all__ = ["add_to", "run"]

_EPILOG = """\
ratio: original bytes for each stored one, the residual not counted. mean error and worst: of its
lossy tensors' |restored - saved| / |saved - restored before|, as measured when they were saved,
the residual not applied. exact: whether the step is restored bit for bit as it was saved.

example:
  ckptz ls run.store --json | jq '.steps[] | select(.exact) | .step'
"""


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "ls",
        run,
        "list the steps of a store",
        "List the steps of a store that can be restored.",
        _EPILOG,
    )
    add_source(parser)
    add_common(parser)


def run(options: argparse.Namespace, console: Console) -> Outcome:
    """List the steps. Raises what the library raises."""
    source = Source(options.source, console, options.threads)
    rows = all_rows(source)
    document: dict[str, object] = {
        "source": str(source.path),
        "steps": [as_json(row) for row in rows],
    }
    return Outcome(document, as_table(rows))
