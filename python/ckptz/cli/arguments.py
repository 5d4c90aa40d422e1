"""The command line: its parser, and what commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ..storage import Storage, is_url, open_storage
from .errors import UsageError
from .report import Outcome

__all__ = [
    "Commands",
    "Parser",
    "add_command",
    "add_common",
    "add_source",
    "file_path",
    "open_place",
    "place",
    "whole_number",
]

Commands = argparse._SubParsersAction


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` where argparse would print and exit."""

    def error(self, message: str) -> NoReturn:
        """Name the command whose help says more."""
        raise UsageError(f"{message} ({self.prog} --help says more)")


def file_path(text: str) -> Path:
    """Read a path. An empty one would mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("an empty path names no file")
    return Path(text)


def place(text: str) -> Path | str:
    """Read a path or a URL."""
    return text if is_url(text) else file_path(text)


def open_place(place: Path | str) -> Storage:
    """Return the storage at a path or URL. Raises `UsageError` where there can be none."""
    try:
        return open_storage(place)
    except (ImportError, ValueError) as error:
        raise UsageError(str(error)) from None


def whole_number(text: str) -> int:
    """Read an integer from 0 up."""
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer from 0 up")
    return int(text)


def add_command(
    commands: Commands[argparse.ArgumentParser],
    name: str,
    run: Callable[..., Outcome],
    summary: str,
    description: str,
    epilog: str,
) -> argparse.ArgumentParser:
    """Add a command, which `run` carries out, and return its parser."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add what every command takes."""
    parser.add_argument(
        "--threads",
        type=whole_number,
        metavar="N",
        help="how many threads to use (default: CKPTZ_NUM_THREADS, else the cores there are)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON document, of an error too",
    )


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the store or file that a command reads."""
    parser.add_argument(
        "source",
        type=place,
        metavar="STORE|FILE",
        help="folder or URL of a store (s3://bucket/run), or one .ckptz file",
    )
