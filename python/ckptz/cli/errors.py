"""What a failed command says, in one line, and the code that it exits with."""

from __future__ import annotations

from ..errors import BoundError, CkptzError, PolicyError, StepExistsError, StepOrderError

__all__ = [
    "DAMAGE",
    "DONE",
    "EXPECTED",
    "INTERRUPTED",
    "IN_OR_OUT",
    "USAGE",
    "UsageError",
    "exit_code",
    "message",
    "printable",
]

DONE, DAMAGE, USAGE, IN_OR_OUT = 0, 1, 2, 3
INTERRUPTED = 130


class UsageError(Exception):
    """A command line that cannot be followed."""


EXPECTED = (UsageError, CkptzError, OSError, MemoryError)
"""Errors that need no traceback: everything else is a bug."""

_USAGE = (UsageError, PolicyError, StepExistsError, StepOrderError)


def exit_code(error: BaseException) -> int:
    """Return the code that a command exits with."""
    if isinstance(error, _USAGE):
        return USAGE
    return DAMAGE if isinstance(error, BoundError) else IN_OR_OUT


def message(error: BaseException) -> str:
    """Describe an error in one line."""
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return printable(f"{error.filename}: {error.strerror}")
    return printable(str(error) or type(error).__name__)


def printable(text: str) -> str:
    """Return text with whatever would move a terminal's cursor, or break a line, escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
