"""Storage backends: the only modules that touch disks."""

from .local import Listed, LocalStorage, Reader, Writer, replace_file

__all__ = ["Listed", "LocalStorage", "Reader", "Writer", "replace_file"]
