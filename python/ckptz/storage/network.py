"""Requests to an object store: tried again until a deadline, their errors made the system's own."""

from __future__ import annotations

import errno
import importlib
import os
import random
import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from ..errors import NetworkError

__all__ = ["Network", "deadline_of"]

_T = TypeVar("_T")

_DEADLINE = "CKPTZ_NETWORK_DEADLINE"
_DEFAULT = 180.0  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds
# Answers that would be the same another time.
_FINAL = re.compile(r"status code: (4(?!08|09|29)\d\d|501)")
_KINDS = {
    "PermissionDeniedError": errno.EACCES,
    "UnauthenticatedError": errno.EACCES,
    "NotSupportedError": errno.ENOTSUP,
    "InvalidPathError": errno.EINVAL,
}


def deadline_of(seconds: str | None) -> float:
    """Return the seconds for which a request is tried again. Raises `ValueError`."""
    try:
        found = _DEFAULT if seconds is None else float(seconds)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e6:
        raise ValueError(f"{_DEADLINE}={seconds!r} is not a number of seconds above 0")
    return found


class Network:
    """Makes requests through obstore."""

    def __init__(self, url: str) -> None:
        """Say where to. Raises `ImportError` without obstore, `ValueError` for a bad deadline."""
        try:
            self.obstore: Any = importlib.import_module("obstore")
            self._stores: Any = importlib.import_module("obstore.store")
        except ImportError:
            raise ImportError(f"{url}: needs obstore: pip install 'ckptz[obstore]'") from None
        self._errors: Any = importlib.import_module("obstore.exceptions")
        self.deadline = deadline_of(os.environ.get(_DEADLINE))
        self._url = url
        self._process = os.getpid()

    def connect(self) -> Any:
        """Return obstore's store for the URL; nothing is sent. Raises `ValueError`."""
        options = {} if self._url.startswith("memory:") else self._options()
        try:
            return self._stores.from_url(self._url, **options)
        except (self._errors.BaseError, ValueError, TypeError) as error:
            raise ValueError(f"{self._url}: {_first_line(error)}") from None

    def _options(self) -> dict[str, Any]:
        # Options of the client are left to the environment, which they would stand in for.
        return {
            "retry_config": {
                "max_retries": 10_000,
                "retry_timeout": timedelta(seconds=self.deadline),
                "backoff": {
                    "init_backoff": timedelta(seconds=_FIRST_PAUSE),
                    "max_backoff": timedelta(seconds=_LONGEST_PAUSE),
                    "base": 2,
                },
            },
        }

    def request(self, what: str, where: str, send: Callable[[], _T], *, once: bool = False) -> _T:
        """Return what a request gives. once: not to be sent again here.

        Raises `FileNotFoundError`, `FileExistsError`, `PermissionError` or another `OSError` for
        an answer that is final, `NetworkError` where there is none until the deadline.
        """
        if os.getpid() != self._process:
            raise OSError(errno.ENOTSUP, "not to be used in a forked process; spawn it", where)
        end = time.monotonic() + self.deadline
        pause = _FIRST_PAUSE
        while True:
            try:
                return send()
            except (self._errors.BaseError, OSError) as error:
                self._raise_if_final(error, what, where)
                if once or time.monotonic() + pause > end:
                    text = f"could not {what} within {self.deadline:g} s: {_first_line(error)}"
                    raise NetworkError(errno.ETIMEDOUT, text, where) from error
            # Not in step with others who wait for the same store.
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _raise_if_final(self, error: Exception, what: str, where: str) -> None:
        text = _first_line(error)
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where) from error
        if isinstance(error, self._errors.AlreadyExistsError):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), where) from error
        number = _KINDS.get(type(error).__name__)
        if number is None and _FINAL.search(str(error)):
            number = errno.EIO
        if number is not None:
            raise OSError(number, f"could not {what}: {text}", where) from error


def _first_line(error: BaseException) -> str:
    """Return what an error says before it tells how it came about."""
    return " ".join(str(error).split("\n\nDebug source")[0].split())[:500]
