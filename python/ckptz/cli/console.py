"""Where a command's words go: its result to stdout, everything else to stderr, a line each."""

from __future__ import annotations

import io
import json
import sys
import warnings
from typing import Any

from ..errors import CkptzWarning
from .errors import INTERRUPTED, exit_code, message, printable
from .progress import Progress
from .report import Outcome

__all__ = ["Console"]


class Console:
    """Prints for one command, as text or as one JSON document."""

    def __init__(self, *, as_json: bool) -> None:
        """Say how to print."""
        self.as_json = as_json
        self.hint = ""
        """What to add to the message, should the command fail: how far it came."""
        self.hears_warnings = True
        """Whether the library's warnings are shown; `verify` reports what they say itself."""
        self._warnings: list[str] = []
        self._progress: Progress | None = None
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")

    def note(self, text: str) -> None:
        """Tell the user something beside the result."""
        self._warnings.append(text)
        if self._progress is not None:
            self._progress.clear()
        _tell(f"ckptz: {printable(text)}\n")

    def progress(self, what: str, total: int | None = None) -> Progress:
        """Begin to show progress, if anyone is there to see it."""
        self._progress = Progress(what, total, quiet=self.as_json)
        return self._progress

    def warn(self, text: Warning | str, category: type[Warning], *where: Any) -> None:
        """Show a warning as a line of its own; stands in for `warnings.showwarning`."""
        if not issubclass(category, CkptzWarning):
            _tell(warnings.formatwarning(text, category, *where[:2]))
        elif self.hears_warnings:
            self.note(f"warning: {text}")

    def finish(self, outcome: Outcome) -> int:
        """Print a result; return the exit code."""
        if self.as_json:
            self._print_json(outcome.document)
        else:
            self._print("\n".join(outcome.lines))
        return outcome.code

    def fail(self, error: BaseException) -> int:
        """Print an error; return the exit code."""
        interrupted = isinstance(error, KeyboardInterrupt)
        text = "interrupted" if interrupted else message(error)
        if self.as_json:
            failed: dict[str, object] = {"error": text, "type": type(error).__name__}
            self._print_json(failed | ({"hint": self.hint} if self.hint else {}))
        else:
            hint = f" ({self.hint})" if self.hint else ""
            _tell(f"ckptz: {text}{hint}\n")
        return INTERRUPTED if interrupted else exit_code(error)

    def _print_json(self, document: dict[str, object]) -> None:
        told = {"warnings": self._warnings} if self._warnings else {}
        self._print(json.dumps(document | told, indent=2, allow_nan=False))

    def _print(self, text: str) -> None:
        if text:
            print(text)
        if sys.stdout is not None:  # which it is where a process begins with it closed
            sys.stdout.flush()


def _tell(text: str) -> None:
    if sys.stderr is not None:  # closed too, perhaps
        sys.stderr.write(text)
