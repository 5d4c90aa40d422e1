"""The command `ckptz`: files into a store and out of it, and what is in it.

Exit codes: 0 done; 1 damage, or a difference, found by `verify`; 2 usage; 3 the input could not be
read or the output not written; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence

from .. import __version__, codec
from ..errors import CkptzWarning
from . import cp, gc, info, ls, pack, unpack, verify
from .arguments import Parser
from .console import Console
from .errors import EXPECTED, IN_OR_OUT, UsageError
from .report import Outcome

__all__ = ["main"]

_EPILOG = """\
examples:
  ckptz pack run/*.safetensors -o run.store     one step a file, in order of their numbers
  ckptz ls run.store
  ckptz unpack run.store --step 1500 -o 1500.safetensors
  ckptz verify run.store --against run/
  ckptz cp run.store s3://bucket/run

exit codes: 0 done; 1 damage or a difference found by verify; 2 usage; 3 the input could not be
read or the output not written; 130 interrupted
"""


def _parser() -> Parser:
    parser = Parser(
        prog="ckptz",
        description="Saves a training run as a stream of small deltas, the newest step exact.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ckptz {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (pack, unpack, ls, info, verify, gc, cp):
        command.add_to(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name (default: those of the process)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    console = Console(as_json="--json" in words)
    code = IN_OR_OUT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", CkptzWarning)
            warnings.showwarning = console.warn  # type: ignore[assignment]
            outcome = _run(words, console)
            code = outcome.code
        return console.finish(outcome)
    except BrokenPipeError:
        # Whoever read the output has what they wanted. Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code
    except (*EXPECTED, KeyboardInterrupt) as error:
        return console.fail(error)


def _run(words: list[str], console: Console) -> Outcome:
    options = _parser().parse_args(words)
    try:
        options.threads = codec.default_threads(options.threads)
    except ValueError as error:
        raise UsageError(str(error)) from None
    run: Callable[..., Outcome] = options.run
    return run(options, console)
