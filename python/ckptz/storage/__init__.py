"""Storage backends: the only modules that touch disks."""

import os

if os.name != "posix":
    raise ImportError("ckptz needs the file locks of Linux or macOS; this system has none of them")

from .files import Reader, Writer, replace_file
from .local import Listed, LocalStorage, is_shortage

__all__ = ["Listed", "LocalStorage", "Reader", "Writer", "is_shortage", "replace_file"]
