"""Which files a command line means, in the order of training, and the step in a file's name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import FormatError

__all__ = ["SUFFIXES", "list_inputs", "step_of"]

SUFFIXES = (".safetensors", ".npz", ".npy", ".pt", ".pth", ".bin", ".ckpt")
_NUMBER = re.compile(r"([0-9]+)")


def list_inputs(paths: Sequence[Path]) -> list[Path]:
    """List the files named, in the order given, each folder replaced by the checkpoints in it.

    A folder's are those with a known suffix (hidden ones not, and none of its folders'), by the
    numbers in their names: 9 before 10, 99 before 100. Raises FormatError for a folder without
    any, OSError for a path that is not there.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            found += _in_folder(path)
        else:
            path.stat()
            found.append(path)
    return found


def step_of(path: Path) -> int | None:
    """Return the one number in the file's name, its suffix not counted; None: none or several."""
    path = Path(path)
    numbers = _NUMBER.findall(path.stem if path.suffix.lower() in SUFFIXES else path.name)
    return int(numbers[0]) if len(numbers) == 1 else None


def _in_folder(folder: Path) -> list[Path]:
    files = [
        path
        for path in folder.iterdir()
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    ]
    if not files:
        raise FormatError(f"{folder}: no checkpoint in this folder ({', '.join(SUFFIXES)})")
    return sorted(files, key=lambda path: (_in_numbers(path.stem), path.name))


def _in_numbers(text: str) -> list[tuple[int, str]]:
    """Make a key that sorts by text and by the numbers in it as numbers."""
    parts = _NUMBER.split(text)
    return [(int(part), "") if i % 2 else (-1, part) for i, part in enumerate(parts)]
