"""`ckptz info`: what a store or a file holds, and what reading it takes."""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

from ..plots import PlotRow, plot_run
from ..policy import Policy, Rule
from ..stats import SnapshotStats, TensorStats, snapshot_stats
from .arguments import Commands, add_command, add_common, add_source, file_path, whole_number
from .console import Console
from .errors import UsageError
from .report import Outcome, count, error_text, json_number, ratio_text, size, table
from .rows import all_rows, mean_error
from .source import Source

__all__ = ["add_to", "run"]

_EPILOG = """\
examples:
  ckptz info run.store
  ckptz info run.store --step 1500
  ckptz info run.store --plot run.png      needs matplotlib: pip install 'ckptz[plots]'
"""


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "info",
        run,
        "tell what a store or a file holds",
        "Tell what a store or a file holds, how large it is, and what a restore reads.",
        _EPILOG,
    )
    add_source(parser)
    parser.add_argument("--tensors", action="store_true", help="list the newest step's tensors")
    parser.add_argument("--step", type=whole_number, metavar="N", help="list the tensors of step N")
    parser.add_argument(
        "--plot", type=file_path, metavar="FILE", help="draw ratio and error: .png, .svg or .pdf"
    )
    add_common(parser)


def run(options: argparse.Namespace, console: Console) -> Outcome:
    """Describe. Raises what the library raises, or `UsageError`."""
    source = Source(options.source, console, options.threads)
    rows = all_rows(source)
    document = _document(source, rows)
    lines = _lines(source, rows, document)
    if options.tensors or options.step is not None:
        stats = snapshot_stats(source.store, source.at(options.step)[0])
        document["tensors"] = _tensors_json(stats)
        lines += ["", f"step {stats.step}:", *_tensors_table(stats)]
    if options.plot is not None:
        _plot(rows, options.plot, source)
        document["plot"] = str(options.plot)
        lines.append(f"picture: {options.plot}")
    return Outcome(document, lines)


def _document(source: Source, rows: list[SnapshotStats]) -> dict[str, object]:
    fulls = [number for number, stats in enumerate(rows) if stats.kind == "full"]
    store = source.store
    newest = store.at(rows[-1].step)[0]
    policy = store.policy(newest)
    restorable = {entry.id for entry in store.restorable()}
    held = {one for entry in store.catalog.entries() for one in entry.files}
    return {
        "source": str(source.path),
        "kind": "file" if source.single else "store",
        "steps": [stats.step for stats in rows],
        "newest": rows[-1].step,
        "newest_exact": rows[-1].exact,
        "policy": None if policy is None else _policy_text(policy),
        "full_snapshots": len(fulls),
        "full_every": max((b - a for a, b in pairwise(fulls)), default=None),
        "off_the_line": len(store.entries.keys() - restorable - store.hidden),
        "dropped": len(store.hidden),
        "pinned": sorted(store.entries[one].meta.step for one in store.pinned),
        "damaged": len(store.problems),
        "restore_files": max(stats.restore_files for stats in rows),
        "restore_bytes": max(stats.restore_bytes for stats in rows),
        "raw_bytes": sum(stats.raw_bytes for stats in rows),
        "bytes": sum(listed.size for listed in held),
        "residual_bytes": sum(entry.size for entry in store.residuals.values()),
        "delta_raw_bytes": sum(s.raw_bytes for s in rows if s.kind == "delta"),
        "delta_bytes": sum(s.bytes for s in rows if s.kind == "delta"),
    }


def _policy_text(policy: Policy) -> str:
    """Return the short name of a policy if it has one."""
    names = ["exact", *(f"lossy:{n}" for n in range(1, 8)), *(f"paper:{n}" for n in range(1, 5))]
    for name in names:
        if Policy.of(name) == policy:
            return "lossy" if name == "lossy:3" else name
    return ", ".join(map(_rule_text, policy.rules))


def _rule_text(rule: Rule) -> str:
    default = Rule(rule.pattern, mode=rule.mode)
    differs = [
        f" {name}={getattr(rule, name)}"
        for name in rule.__struct_fields__
        if getattr(rule, name) != getattr(default, name)
    ]
    return f"{rule.pattern}: {rule.mode}{''.join(differs)}"


def _lines(source: Source, rows: list[SnapshotStats], document: dict[str, object]) -> list[str]:
    every = document["full_every"]
    numbers = {key: value for key, value in document.items() if isinstance(value, int)}
    held, raw = numbers["bytes"], numbers["raw_bytes"]
    steps = f"{rows[0].step} to {rows[-1].step} ({len(rows)})"
    exact = "exact" if document["newest_exact"] else "lossy"
    reads = count(numbers["restore_files"], "file")
    pairs = [
        ("policy", document["policy"] or "-"),
        ("steps", steps if len(rows) > 1 else rows[0].step),
        ("newest", f"{document['newest']}, {exact}"),
        ("full snapshots", _fulls_text(numbers["full_snapshots"], every)),
        ("a restore reads", f"at most {reads}, {size(numbers['restore_bytes'])}"),
        ("size", f"{size(held)} for {size(raw)} ({ratio_text(raw, held)})"),
    ]
    if numbers["delta_bytes"]:
        delta, of = numbers["delta_bytes"], numbers["delta_raw_bytes"]
        pairs.append(("its deltas", f"{size(delta)} for {size(of)} ({ratio_text(of, delta)})"))
    if numbers["residual_bytes"]:
        pairs.append(("its residual", size(numbers["residual_bytes"])))
    for name, key, what in (
        ("off the line", "off_the_line", "snapshot"),
        ("dropped steps", "dropped", "snapshot"),
        ("damaged files", "damaged", "file"),
    ):
        if numbers[key]:
            pairs.append((name, count(numbers[key], what)))
    pinned = document["pinned"]
    if isinstance(pinned, list) and pinned:
        pairs.append(("pinned", ", ".join(map(str, pinned))))
    width = max(len(name) for name, _ in pairs)
    kind = "one file" if source.single else "a store"
    return [f"{source.path}: {kind}", *(f"  {name:<{width}}  {text}" for name, text in pairs)]


def _fulls_text(fulls: int, every: object) -> str:
    return (
        f"{fulls}" if every is None else f"{fulls}, at most {every} snapshots from one to the next"
    )


def _tensors_json(stats: SnapshotStats) -> list[dict[str, object]]:
    return [
        {
            "path": path,
            "dtype": t.dtype,
            "shape": list(t.shape),
            "kind": t.kind,
            "base": t.base,
            "siblings": list(t.siblings),
            "coding": t.coding,
            "lossy": t.lossy,
            "error": json_number(t.error),
            "raw_bytes": t.raw_bytes,
            "bytes": t.bytes,
            "link": t.link,
        }
        for path, t in stats.tensors.items()
    ]


def _tensors_table(stats: SnapshotStats) -> list[str]:
    head = ["<tensor", "<dtype", "<shape", "<kind", "<base", "<coding", "raw", "bytes", "ratio"]
    return table([*head, "error"], [_tensor_row(path, t) for path, t in stats.tensors.items()])


def _tensor_row(path: str, t: TensorStats) -> list[object]:
    shape = "x".join(map(str, t.shape)) or "-"
    kind = t.kind if t.link is None else f"link to {t.link}"
    ratio = ratio_text(t.raw_bytes, t.bytes)
    raw, stored = size(t.raw_bytes), size(t.bytes)
    error = error_text(t.error) if t.lossy else "exact"
    return [path, t.dtype, shape, kind, t.base, t.coding or "-", raw, stored, ratio, error]


def _plot(rows: list[SnapshotStats], path: Path, source: Source) -> None:
    points = [PlotRow(s.step, s.ratio, mean_error(s), s.kind) for s in rows]
    try:
        plot_run(points, path, title=str(source.path))
    except ImportError:
        raise UsageError("--plot needs matplotlib: pip install 'ckptz[plots]'") from None
    except ValueError as error:
        raise UsageError(f"--plot {path}: {error}") from None
