"""Storage backends: the only modules that touch disks."""

from .files import Reader, Writer, replace_file
from .local import Listed, LocalStorage, is_shortage

__all__ = ["Listed", "LocalStorage", "Reader", "Writer", "is_shortage", "replace_file"]
