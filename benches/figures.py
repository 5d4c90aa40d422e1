"""Sizes and errors on folders of real snapshots: what the closing notes and docs/results.md quote.

    python benches/figures.py FOLDER... [--reference FILE] [--markdown FILE]

A FOLDER holds consecutive snapshots of one run (.safetensors, .npz, .pt), or such folders. All
bytes of a store count, but the first full snapshot. With --reference (made from the same
snapshots by other code: see the traces' README) the paper's rule is compared with it delta for
delta. Errors are in step norms: |restored - saved| / |saved - saved before|.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import zstandard
from runs import State, check_same, digest, folders, geometric_mean, load, save_run

HEAD = """# Results

Sizes and errors on real snapshots of small training runs, written by
`python benches/figures.py FOLDER... --markdown docs/results.md`. Ratios are the bytes of the arrays
over all bytes of the store, its first full snapshot apart. Errors are in step norms: what is lost,
over what the weights moved between two snapshots. In a trace's name `c50` says that its snapshots
are 50 iterations apart, `early` and `late` which part of the training they are from. "Plain" and
"best" are bytes of payload and tables. Speeds are in [benchmarks.md](benchmarks.md)."""


class Report:
    """Lines for the terminal and, if asked for, a page of Markdown."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failed = 0

    def say(self, text: str = "") -> None:
        print(text, flush=True)
        self.lines.append(text)

    def table(self, title: str, head: list[str], rows: list[list[object]]) -> None:
        self.say(f"\n### {title}\n")
        self.say("| " + " | ".join(head) + " |")
        self.say("|" + "---|" * len(head))
        for row in rows:
            self.say(
                "| "
                + " | ".join(f"{x:.3g}" if isinstance(x, float) else str(x) for x in row)
                + " |"
            )

    def aim(self, what: str, reached: bool, figure: str) -> None:
        self.failed += not reached
        self.say(f"- {'reached' if reached else 'MISSED'}: {what}: {figure}")


def paper(report: Report, runs: list[tuple[str, list[Path]]], reference: dict[str, Any]) -> None:
    """The paper's rule, against other code's results where there are such."""
    rows = []
    same = deltas = 0
    worst_bits = worst_error = 0.0
    ratios: dict[int, list[float]] = defaultdict(list)
    full_share: list[float] = []
    for name, files in runs:
        for bits in (1, 2, 3, 4):
            for representative in ("midrange", "mean"):
                policy = ckptz.Policy.paper(bits=bits, representative=representative)  # type: ignore[arg-type]
                run = save_run(files, policy, weights=True)
                known = reference.get(name, {}).get(f"x={bits} {representative}")
                errors = run.errors["weights"]
                if known and representative == "midrange":
                    found = [digest(state) for state in run.restored]
                    same += sum(a == b for a, b in zip(found, known["sha256_16"], strict=True))
                    deltas += len(found)
                if known:
                    # Four streams a chunk, each padded to a byte, and its length in a byte or two.
                    expected = sum(known["payload_bits"]) / 8
                    streams = 4 * 3 * reference[name]["tensors"] * len(errors)
                    worst_bits = max(worst_bits, (run.payload - streams - expected) / expected)
                    worst_bits = max(worst_bits, (expected - run.payload) / expected)
                    gaps = [
                        abs(a - b) / b
                        for a, b in zip(errors, known["error_in_step_norms"], strict=True)
                    ]
                    worst_error = max(worst_error, *gaps)
                if representative == "midrange":
                    ratios[bits].append(run.raw / run.payload)
                    if bits == 3:
                        full_share.append(run.stored / run.raw)
                    rows.append([name, bits, run.raw / run.payload, run.ratio, errors[-1]])
    report.table(
        "Paper's rule, midrange, weights",
        ["trace", "x", "payload ratio", "store ratio", "error of the last"],
        rows,
    )
    if deltas:
        report.aim(
            "restored weights' SHA-256 equal after every delta",
            same == deltas,
            f"{same} of {deltas}",
        )
        report.aim(
            "payload bits within 0.5% plus padding", worst_bits <= 0.005, f"{100 * worst_bits:.2f}%"
        )
        report.aim("mean: error within 1%", worst_error <= 0.01, f"{100 * worst_error:.2f}%")
    report.say(
        "- geometric mean of the payload ratio: "
        f"x=2 {geometric_mean(ratios[2]):.1f}, x=3 {geometric_mean(ratios[3]):.1f}"
    )
    report.aim(
        "x=3 under 10% of full size, all bytes",
        max(full_share) < 0.1,
        f"{100 * max(full_share):.1f}% at most",
    )


def codings(report: Report, runs: list[tuple[str, list[Path]]]) -> None:
    """The same symbols under the paper's coding and under the cheapest."""
    rows = []
    gains: dict[int, list[float]] = defaultdict(list)
    for name, files in runs:
        for bits in (2, 3):
            plain = save_run(files, ckptz.Policy.paper(bits=bits), weights=True)
            best = save_run(files, ckptz.Policy.paper(bits=bits, coding="auto"), weights=True)
            gain = (plain.payload + plain.tables) / (best.payload + best.tables)
            gains[bits].append(gain)
            rows.append(
                [name, bits, plain.payload + plain.tables, best.payload + best.tables, gain]
            )
    report.table("Same symbols, payload and tables", ["trace", "x", "plain", "best", "gain"], rows)
    report.aim(
        "x=3 at least 1.25 times smaller",
        geometric_mean(gains[3]) >= 1.25,
        f"{geometric_mean(gains[3]):.2f}",
    )
    report.aim(
        "x=2 at least 4 times smaller",
        geometric_mean(gains[2]) >= 4,
        f"{geometric_mean(gains[2]):.2f}",
    )


AIMS = {
    ("gpt_nano/late_c50", 3): 25,
    ("lenet_mom/late_c50", 3): 50,
    ("gpt_nano/late_c50", 2): 40,
    ("lenet_mom/late_c50", 2): 120,
}


def lossy(report: Report, runs: list[tuple[str, list[Path]]]) -> None:
    """The product's default on whole states."""
    rows = []
    for name, files in runs:
        for levels in (3, 2):
            run = save_run(files, ckptz.Policy.lossy(levels=levels), weights=False)
            moments = [x for s in run.restored for k, x in s.items() if "exp_avg_sq" in k]
            assert all(np.isfinite(x).all() and not np.signbit(x).any() for x in moments)
            errors = ", ".join(f"{k} {sum(v) / len(v):.2f}" for k, v in run.errors.items())
            rows.append(
                [
                    name,
                    levels,
                    run.raw // len(run.restored),
                    run.stored // len(run.restored),
                    run.ratio,
                    errors,
                ]
            )
            aim = AIMS.get((name, levels))
            if aim:
                report.aim(
                    f"{name}, {levels} levels: at least {aim}x",
                    run.ratio >= aim,
                    f"{run.ratio:.1f}x",
                )
    report.table(
        "Policy.lossy(), whole states, all bytes of the deltas",
        ["trace", "levels", "state", "delta", "ratio", "mean error by kind"],
        rows,
    )


BOUNDED = ("gpt_nano/late_c50", "lenet_mom/late_c50")


def bounded(report: Report, runs: list[tuple[str, list[Path]]]) -> None:
    """What bounds on every entry's error take, and that they hold."""
    rules = [ckptz.Rule(), *(ckptz.Rule(max_error=10.0**-k) for k in range(2, 8))]
    rules += [ckptz.Rule(max_rel_error=10.0**-k) for k in range(1, 5)]
    rules += [ckptz.Rule(mode="exact")]
    rows: list[list[object]] = []
    worst = 0.0
    for name, files in (run for run in runs if run[0] in BOUNDED):
        states = [load(path, weights=False) for path in files[1:]]
        for rule in rules:
            run = save_run(files, rule, weights=False)
            bound = f"{rule.max_error:g}" if rule.max_error else "-"
            bound = f"{rule.max_rel_error:g} x" if rule.max_rel_error else bound
            pairs = zip(run.restored, states, strict=True)
            largest = max(largest_error(rule, r[key], u[key]) for r, u in pairs for key in u)
            if rule.is_bounded:
                worst = max(worst, largest / (rule.max_error or rule.max_rel_error or 1.0))
            label = "exact" if rule.mode == "exact" else bound
            rows.append([name, label, run.stored // len(states), run.ratio, largest])
    head = ["trace", "bound", "bytes a delta", "ratio", "largest error"]
    report.table(
        "Bounds on every entry (x: relative), whole states, all bytes of the deltas", head, rows
    )
    if rows:
        report.aim("every entry within its bound", worst <= 1, f"{worst:.4f} of it at most")


def largest_error(rule: ckptz.Rule, restored: Any, original: Any) -> float:
    """Of a float tensor: absolute, or relative where the rule's bound is so."""
    if original.dtype.kind != "f":
        return 0.0
    r, u = np.asarray(restored, np.float64), np.asarray(original, np.float64)
    scale = np.abs(u) if rule.max_rel_error else np.ones_like(u)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.fmax.reduce((np.abs(r - u) / scale).reshape(-1), initial=0.0))


def full_ratio(state: State) -> float:
    """Save a state alone, exactly."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "full.ckptz"
        ckptz.save_file(state, path)
        check_same(ckptz.load_file(path), state)
        return sum(x.nbytes for x in state.values()) / path.stat().st_size


def zstd_ratio(files: list[Path]) -> float:
    """What a general compressor makes of the same snapshots."""
    contents = [b"".join(x.tobytes() for x in load(path, weights=False).values()) for path in files]
    coded = [zstandard.ZstdCompressor(level=3).compress(content) for content in contents]
    return sum(map(len, contents)) / sum(map(len, coded))


def exact(report: Report, runs: list[tuple[str, list[Path]]]) -> None:
    """Full snapshots of the float32 weights; and what the exact newest snapshot costs."""
    rows = []
    fulls = []
    for name, files in runs:
        full: object = "-"
        if weights := load(files[0], weights=True):
            fulls.append(full := full_ratio(weights))
        run = save_run(files, "lossy", weights=False, exact="latest")
        exactly = save_run(files, "exact", weights=False)
        written = sum(run.stored_each)
        rows.append(
            [name, full, run.raw / written, exactly.ratio, run.ratio, zstd_ratio(files[1:])]
        )
    head = [
        "trace",
        "full snapshot of f32 weights",
        "written with exact='latest'",
        "exact deltas",
        "kept (lossy deltas)",
        "zstd -3 of the state",
    ]
    report.table("Exact: ratios", head, rows)
    report.aim(
        "full snapshot of f32 weights at least 1.18x, bit for bit",
        min(fulls) >= 1.18,
        f"{min(fulls):.3f}x at least",
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    runs = list(folders(arguments.folders))
    reference = json.loads(arguments.reference.read_text()) if arguments.reference else {}
    report = Report()
    with_weights = [run for run in runs if load(run[1][0], weights=True)]
    paper(report, with_weights, reference)
    codings(report, with_weights)
    lossy(report, runs)
    bounded(report, runs)
    exact(report, runs)
    if arguments.markdown:
        arguments.markdown.write_text("\n".join([HEAD, *report.lines]) + "\n")
    return int(report.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
