"""Pictures of a run. Needs matplotlib, which is imported only when one is drawn."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["PlotRow", "plot_run"]

RECORD_ERROR = "mean error\n(parts of the step's change)"

# Okabe and Ito's colours, which colour-blind readers can tell apart; markers differ too.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "^", "D", "v", "P", "X", "*")
_STYLE: Any = {
    "font.size": 12,
    "axes.labelsize": 12,
    "axes.titlesize": 14,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "axes.axisbelow": True,
    "lines.linewidth": 2.0,
    "lines.markersize": 7.0,
    "svg.fonttype": "none",
}
_HOLLOW: Any = {
    "marker": "s",
    "linestyle": "",
    "markerfacecolor": "white",
    "markeredgewidth": 2.0,
    "clip_on": False,
}
# From this range on a linear axis would press small ratios to the floor.
_WIDE = 6.0
# More steps than this are drawn without a marker each.
_CROWDED = 60


class PlotRow(NamedTuple):
    """One step of a run, as `plot_run` takes it."""

    step: int
    ratio: float
    """Original bytes for each stored one."""
    error: float | None
    """None: not known."""
    kind: str = "delta"
    """full or delta."""
    run: str = ""
    """Which run, where several are drawn."""


def plot_run(
    rows: Iterable[PlotRow],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    error_label: str = RECORD_ERROR,
) -> None:
    """Draw ratio and error over the steps, and save as the suffix says: .png, .svg or .pdf.

    Raises `ImportError` without matplotlib, `ValueError` for another suffix or no rows, `OSError`.
    """
    points = list(rows)
    suffix = Path(path).suffix.lower()
    if suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"{suffix or 'no suffix'} is not .png, .svg or .pdf")
    if not points:
        raise ValueError("there are no steps to draw")
    from matplotlib import rc_context

    with rc_context(_STYLE):
        _draw(points, Path(path), title, error_label)


def _draw(points: list[PlotRow], path: Path, title: str, error_label: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 6.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    runs = list(dict.fromkeys(point.run for point in points))
    for number, run in enumerate(runs):
        own = [point for point in points if point.run == run]
        colour = _COLOURS[number % len(_COLOURS)]
        crowded = len(own) > _CROWDED
        marker = "" if crowded else _MARKERS[number % len(_MARKERS)]
        # Full snapshots of several runs may lie on one another: each is drawn smaller.
        square = _HOLLOW | {"markersize": 5.0 if crowded else max(4.0, 10.0 - 4.0 * number)}
        _line(upper, own, [point.ratio for point in own], colour, marker, square)
        _line(lower, own, [point.error for point in own], colour, marker, square)
    _ratio_axis(upper, [point.ratio for point in points])
    lower.set_ylabel(error_label)
    lower.set_ylim(bottom=0.0)
    lower.margins(y=0.1)
    lower.set_xlabel("step (training iterations)")
    _step_axis(lower, sorted({point.step for point in points}))
    if title:
        upper.set_title(title, loc="left")
    _legend(figure, upper, points, runs)
    figure.savefig(path, dpi=150)


def _line(
    axes: Any,
    points: list[PlotRow],
    values: list[float | None],
    colour: str,
    marker: str,
    square: dict[str, Any],
) -> None:
    """Draw one run: a line through its deltas, and its full snapshots apart."""
    pairs = [(p, v) for p, v in zip(points, values, strict=True) if v is not None]
    pairs = [(p, v) for p, v in pairs if math.isfinite(v)]
    deltas = [(p.step, v) for p, v in pairs if p.kind != "full"]
    fulls = [(p.step, v) for p, v in pairs if p.kind == "full"]
    if deltas:
        name = points[0].run or "delta"
        axes.plot(*zip(*deltas, strict=True), color=colour, marker=marker, label=name)
    if fulls:
        axes.plot(*zip(*fulls, strict=True), color=colour, zorder=3, **square)


def _ratio_axis(axes: Any, ratios: list[float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_ylabel("size ratio\n(original bytes / stored bytes)")
    if max(ratios) < _WIDE * min(ratios):
        axes.set_ylim(bottom=0.0)
    else:
        axes.set_yscale("log")
        axes.set_ylim(min(ratios) * 0.8, max(ratios) * 1.3)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))


def _step_axis(axes: Any, steps: list[int]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if len(steps) <= 8:
        axes.set_xticks(steps)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))


def _legend(figure: Any, axes: Any, points: list[PlotRow], runs: list[str]) -> None:
    """Tell runs and kinds of snapshots apart, outside the panels so that nothing is hidden."""
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    if any(point.kind == "full" for point in points):
        handles.append(Line2D([], [], color="#555555", **_HOLLOW))
        labels.append("full snapshot (exact)")
    if len(runs) > 1 or len(handles) > 1:
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
