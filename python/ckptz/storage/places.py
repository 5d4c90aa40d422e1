"""From what a user names, a path or a URL, to the storage that it stands for."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from .base import Storage
from .local import LocalStorage

__all__ = ["is_url", "open_storage"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_url(place: object) -> bool:
    """Whether a place is named by a URL, not by a path."""
    return isinstance(place, str) and _URL.match(place) is not None


def open_storage(place: str | os.PathLike[str]) -> Storage:
    """Return the storage at a path or URL; nothing there is touched yet.

    Raises `ValueError` for a URL that means nothing, `ImportError` where obstore is not installed.
    """
    if not is_url(place):
        return LocalStorage(place)
    url = urlsplit(str(place))
    if url.scheme.lower() == "file" and url.netloc in ("", "localhost"):
        return LocalStorage(unquote(url.path))
    from .objects import ObjectStorage

    return ObjectStorage(str(place))
