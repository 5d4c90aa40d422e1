"""The errors that ckptz raises. Errors of the operating system stay `OSError`."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "BoundError",
    "ChecksumError",
    "CkptzError",
    "CkptzWarning",
    "FormatError",
    "MismatchError",
    "MissingKeyError",
    "MissingSnapshotError",
    "NetworkError",
    "OtherProcessError",
    "PolicyError",
    "StateChangedError",
    "StepExistsError",
    "StepOrderError",
    "StoreLockedError",
    "UnknownVersionError",
    "UnsupportedTypeError",
    "check_process",
    "some",
    "warn",
]

_PACKAGE = f"{Path(__file__).parent}{os.sep}"


class CkptzError(Exception):
    """Base of every error that ckptz raises itself."""


class FormatError(CkptzError):
    """Damaged or foreign bytes: names the file, the offset and what is wrong there."""

    snapshot: bytes | None = None
    """Id of the damaged snapshot, where it is known: an ancestor of the wanted one, perhaps."""


class ChecksumError(FormatError):
    """Bytes that read well but do not match their checksum or content sum."""


class UnknownVersionError(FormatError):
    """A whole file of a newer ckptz. No store is read or written around one: it may say how."""


class MissingSnapshotError(CkptzError, LookupError):
    """A step, a parent snapshot, or a key that the store does not hold."""


class MissingKeyError(MissingSnapshotError, KeyError):
    """A key path that the snapshot does not hold: no damage."""

    __str__ = Exception.__str__  # that of `KeyError` would quote the message


class MismatchError(CkptzError, ValueError):
    """A leaf that is not as the template has it: names its key path and both."""


class StateChangedError(CkptzError, RuntimeError):
    """A state's arrays changed while it was being saved: nothing is saved then."""


class StepExistsError(CkptzError, ValueError):
    """The step can be restored already; `overwrite=True` saves a new generation of it."""


class StepOrderError(CkptzError, ValueError):
    """Steps rise along a line; `restore(step, rewind=True)` goes back to an older one."""


class StoreLockedError(CkptzError, OSError):
    """Another writer holds the store."""


class NetworkError(CkptzError, OSError):
    """An object store did not answer, or not as it should, until the deadline: says what, where."""


class OtherProcessError(CkptzError, RuntimeError):
    """A manager, or what it gave, in a process that was forked: it serves the one that made it."""


def check_process(made_in: int, what: str) -> None:
    """Raise `OtherProcessError` in another process than that with the given number."""
    if os.getpid() != made_in:
        raise OtherProcessError(
            f"{what} was made in process {made_in} and is of no use in this one, which was "
            "forked from it; make a CheckpointManager of its own here"
        )


class PolicyError(CkptzError, ValueError):
    """A rule or policy that cannot be followed."""


class UnsupportedTypeError(CkptzError, TypeError):
    """A leaf or key of a type that is not stored: names its key path and type."""


class BoundError(CkptzError):
    """A tensor with an entry beyond its rule's bound: names key path, largest error and bound."""


class CkptzWarning(UserWarning):
    """Something was skipped or replaced; the message names it."""


def warn(text: str) -> None:
    """Issue a `CkptzWarning` that points at the user's line, however deep in the package it is."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    warnings.warn(text, CkptzWarning, stacklevel=level)


def some(numbers: Iterable[int]) -> str:
    """Return numbers as text for a message, of many only the first and the last."""
    found = list(numbers)
    if not found:
        return "none"
    if len(found) > 8:
        return f"{', '.join(map(str, found[:4]))}, .. {', '.join(map(str, found[-3:]))}"
    return ", ".join(map(str, found))
