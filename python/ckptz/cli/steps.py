"""Users' files: which step each stands for, and the state that it holds."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ..inputs import list_inputs, open_input, step_of
from ..snapshot import LARGEST_STEP
from .console import Console
from .errors import UsageError

__all__ = ["match_steps", "read_state"]

_SHARD = re.compile(r"[0-9]+-of-[0-9]+")
_RANGE = re.compile(r"([0-9]+):([0-9]+)")
_TOO_LONG = re.compile(r"[0-9]{1000}")  # for Python to read


def match_steps(
    paths: Sequence[Path], steps: str | None, console: Console
) -> list[tuple[int, Path]]:
    """Return (step, file) with steps rising, folders replaced by what is in them.

    steps: what `--steps` says; without it the one number in each name, else the positions.
    Raises `UsageError`, `FormatError` for a folder without any, `OSError`.
    """
    files = list_inputs(paths)
    if steps is not None:
        found = list(zip(_parse(steps, len(files)), files, strict=True))
    else:
        found = _by_name(files, console)
    for (step, one), (after, other) in pairwise(found):
        if step == after:
            raise UsageError(f"{one} and {other} are both step {step}; say --steps")
        if step > after:
            raise UsageError(f"steps must rise: {one} is step {step}, {other} after it {after}")
    if found and found[-1][0] > LARGEST_STEP:
        raise UsageError(f"{found[-1][1]}: step {found[-1][0]} is above 2^63 - 1")
    return found


def _by_name(files: Sequence[Path], console: Console) -> list[tuple[int, Path]]:
    for path in files:
        if _SHARD.search(path.name) and len(files) > 1:
            raise UsageError(
                f"{path}: one of the parts of a checkpoint, not a step; merge them first, "
                "or say --steps if it is not"
            )
    named = [(step, path) for path in files if (step := step_of(path)) is not None]
    if len(named) == len(files):
        return sorted(named, key=lambda pair: pair[0])
    odd = next(path for path in files if step_of(path) is None)
    if len(files) > 1:
        console.note(
            f"note: the steps are the files' positions, 0 to {len(files) - 1}: {odd.name} has not "
            "one number in its name"
        )
    return list(enumerate(files))


def _parse(text: str, files: int) -> list[int]:
    """Read `FIRST:STRIDE`, or one number a file with commas between."""
    if _TOO_LONG.search(text):
        raise UsageError(f"--steps {text:.40}..: a number above 2^63 - 1")
    pair = _RANGE.fullmatch(text)
    if pair is not None:
        first, stride = map(int, pair.groups())
        return [first + stride * position for position in range(files)]
    numbers = text.split(",")
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise UsageError(f"--steps {text}: not FIRST:STRIDE, nor numbers with commas between them")
    if len(numbers) != files:
        raise UsageError(f"--steps has {len(numbers)} numbers for {files} files")
    return list(map(int, numbers))


def read_state(path: Path) -> object:
    """Return the state in a file, its arrays views of mapped pages where the file allows.

    Text that a .safetensors file holds beside its tensors goes with it, as the `_metadata` of an
    ordered dict: that adds no key. Raises `FormatError`, `UnsupportedTypeError`, `OSError`.
    """
    with open_input(path) as file:
        state = file.state()
        if file.metadata and isinstance(state, dict):
            ordered = OrderedDict(state)
            ordered._metadata = dict(file.metadata)  # type: ignore[attr-defined]
            return ordered
        return state
