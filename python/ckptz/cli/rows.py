"""One line a step: what `ls`, `info` and its picture are made of."""

from __future__ import annotations

import math
from datetime import datetime, timezone

from ..stats import SnapshotStats, snapshot_stats
from .report import error_text, json_number, ratio_text, size, table
from .source import Source

__all__ = ["Row", "all_rows", "as_json", "as_table", "mean_error"]

_HEAD = (
    "step",
    "<kind",
    "bytes",
    "residual",
    "ratio",
    "mean error",
    "worst",
    "<exact",
    "restore reads",
    "<saved",
)

Row = tuple[SnapshotStats, datetime]


def all_rows(source: Source) -> list[Row]:
    """Return what every step that can be restored takes, and when it was saved."""
    return [
        (
            snapshot_stats(source.store, entry),
            datetime.fromtimestamp(entry.meta.created / 1000, timezone.utc),
        )
        for entry in source.entries()
    ]


def mean_error(stats: SnapshotStats) -> float:
    """Return the errors of the lossy tensors in one number: their root mean square over bytes."""
    lossy = [t for t in stats.tensors.values() if t.lossy]
    squares = sum(t.raw_bytes * t.error**2 for t in lossy)
    return math.sqrt(squares / max(1, sum(t.raw_bytes for t in lossy)))


def as_json(row: Row) -> dict[str, object]:
    """Return a row for `--json`."""
    stats, saved = row
    return {
        "step": stats.step,
        "id": stats.id,
        "kind": stats.kind,
        "saved": saved.isoformat(),
        "raw_bytes": stats.raw_bytes,
        "bytes": stats.bytes,
        "residual_bytes": stats.residual_bytes,
        "ratio": json_number(stats.ratio),
        "error": json_number(stats.error),
        "mean_error": json_number(mean_error(stats)),
        "exact": stats.exact,
        "finite": stats.finite,
        "restore_files": stats.restore_files,
        "restore_bytes": stats.restore_bytes,
    }


def as_table(rows: list[Row]) -> list[str]:
    """Lay out rows for reading."""
    cells = []
    for stats, saved in rows:
        cells.append(
            [
                stats.step,
                stats.kind,
                size(stats.bytes),
                size(stats.residual_bytes) if stats.residual_bytes else "-",
                ratio_text(stats.raw_bytes, stats.bytes),
                error_text(mean_error(stats)),
                error_text(stats.error),
                "yes" if stats.exact else "no",
                f"{size(stats.restore_bytes)} in {stats.restore_files}",
                saved.astimezone().strftime("%Y-%m-%d %H:%M"),
            ]
        )
    return table(_HEAD, cells)
