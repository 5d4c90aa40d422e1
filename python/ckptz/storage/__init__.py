"""Storage backends: the only modules that touch disks and networks."""

import os

if os.name != "posix":
    raise ImportError("ckptz needs the file locks of Linux or macOS; this system has none of them")

from .base import NO_FILES, Bytes, Listed, Sink, Source, Storage, is_shortage
from .files import Reader, Writer, replace_file
from .local import LocalStorage
from .places import is_url, open_storage

__all__ = [
    "NO_FILES",
    "Bytes",
    "Listed",
    "LocalStorage",
    "Reader",
    "Sink",
    "Source",
    "Storage",
    "Writer",
    "is_shortage",
    "is_url",
    "open_storage",
    "replace_file",
]
