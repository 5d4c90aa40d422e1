"""What a command found, and how that reads: sizes, numbers, and tables with aligned columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from .errors import DONE, printable

__all__ = ["Outcome", "count", "error_text", "json_number", "ratio_text", "size", "table"]

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


@dataclass
class Outcome:
    """The result of a command, before it is printed."""

    document: dict[str, object]
    """What `--json` prints."""
    lines: list[str] = field(default_factory=list)
    """What is printed without."""
    code: int = DONE


def size(bytes_: int) -> str:
    """Show a number of bytes in three digits."""
    if bytes_ < 1000:
        return f"{bytes_} B"
    power = min(len(_UNITS) - 1, (len(str(bytes_)) - 1) // 3)
    value = bytes_ / 1000**power
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {_UNITS[power]}"


def count(number: int, what: str) -> str:
    """Show a number of things: 1 file, 2 files."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def ratio_text(original: int, stored: int) -> str:
    """Show how many times smaller something has become."""
    ratio = original / max(1, stored)
    return f"{ratio:.2f}x" if ratio < 9.995 else f"{ratio:.1f}x"


def error_text(error: float | None) -> str:
    """Show an error: exactly 0 as 0, else three digits."""
    if error is None:
        return "-"
    return "0" if error == 0 else f"{error:.3g}"


def json_number(value: float | None) -> float | None:
    """Return a number for JSON, which has none that are not finite: None."""
    return value if value is not None and math.isfinite(value) else None


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lay out rows in columns; those whose head starts with `<` are flush left."""
    left = [name.startswith("<") for name in head]
    cells = [[name.removeprefix("<") for name in head]]
    cells += [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = [
            cell.ljust(width) if flush else cell.rjust(width)
            for cell, width, flush in zip(row, widths, left, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines
