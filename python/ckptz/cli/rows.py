"""One line a step: what `ls`, `info` and its picture are made of."""

from __future__ import annotations

import math
from datetime import datetime, timezone

from ..stats import SnapshotStats, snapshot_stats
from .report import error_text, json_number, ratio_text, size, table
from .source import Source

__all__ = ["all_rows", "as_json", "as_table", "mean_error"]

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


def all_rows(source: Source) -> list[SnapshotStats]:
    """Return what every step that can be restored takes."""
    return [snapshot_stats(source.store, entry) for entry in source.entries()]


def _saved(stats: SnapshotStats, zone: timezone | None) -> datetime | None:
    """Return when a step was saved, by local time without a zone; None: no calendar has it."""
    try:
        saved = datetime.fromtimestamp(stats.created, timezone.utc)
        return saved.astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return None


def mean_error(stats: SnapshotStats) -> float:
    """Return the errors of the lossy tensors in one number: their root mean square over bytes."""
    lossy = [t for t in stats.tensors.values() if t.lossy]
    squares = sum(t.raw_bytes * t.error**2 for t in lossy)
    return math.sqrt(squares / max(1, sum(t.raw_bytes for t in lossy)))


def as_json(stats: SnapshotStats) -> dict[str, object]:
    """Return a row for `--json`."""
    saved = _saved(stats, timezone.utc)
    return {
        "step": stats.step,
        "id": stats.id,
        "kind": stats.kind,
        "saved": saved.isoformat() if saved else None,
        "raw_bytes": stats.raw_bytes,
        "bytes": stats.bytes,
        "residual_bytes": stats.residual_bytes,
        "ratio": json_number(stats.ratio),
        "error": json_number(stats.error),
        "mean_error": json_number(mean_error(stats)),
        "exact": stats.exact,
        "finite": stats.finite,
        "pinned": stats.pinned,
        "lossy_restores": stats.lossy_restores,
        "metrics": {name: json_number(value) for name, value in stats.metrics.items()},
        "restore_files": stats.restore_files,
        "restore_bytes": stats.restore_bytes,
    }


def as_table(rows: list[SnapshotStats]) -> list[str]:
    """Lay out rows for reading."""
    cells = []
    for stats in rows:
        saved = _saved(stats, None)
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
                saved.strftime("%Y-%m-%d %H:%M") if saved else "-",
            ]
        )
    return table(_HEAD, cells)
