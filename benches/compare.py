"""Speed, size and memory beside memcpy and peers, in one process and one run.

    python benches/compare.py [TRACES] [--quick] [--mb N] [--rounds N] [--markdown FILE]

TRACES holds folders of consecutive snapshots (../shared/traces where it is there, else
examples/data), whose tensors are tiled to the size. All sides get the same arrays and buffers
whose pages are warm; what comes back is checked; times are medians of interleaved rounds.
Peers are what benches/peers.txt names; those that are not installed are left out and named.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aims
import breakdown
import ckptz
import numpy as np
import saves
from arrays import Traces, adam, as_set, bfloat16, deltas, largest_delta, weights
from figures import Report
from peers import missing
from races import compare
from timing import cpu, keep_pages

ROOT = Path(__file__).resolve().parent.parent
NOTES = """
GB/s are of original bytes. Percentages are of memcpy's speed on the same array in the same run.
"lossy" is the default policy: each tensor against the one before, updated in place. "exact delta"
is the same bit for bit; "alone" is coding without a base, as the general peers do. Where a table
says "deltas" the coder got target - base, computed beforehand and not counted: it neither
subtracts nor applies. Memory is the peak over what was held before, coded output included.
"""


def main() -> int:
    arguments = _arguments()
    zen1 = cpu()[1]
    warm = keep_pages()
    traces = Traces(arguments.traces)
    nbytes, rounds = arguments.mb << 20, arguments.rounds
    report = Report()
    _introduce(report, arguments, warm)
    with _section("figures to show"):
        plain, one = weights(nbytes), largest_delta(traces, nbytes)
        assert one is not None, f"{arguments.traces} holds no snapshots"
        aims.show(report, plain, one, 2 * rounds + 1, zen1)
        aims.threads(report, 10 * rounds + 1)
        aims.content_sums(report, plain.targets[0], rounds)
        aims.importing(report, 5 if arguments.quick else 15)
    with _section("races"):
        del one
        compare(report, plain, rounds)
        del plain
        changes = deltas(traces, nbytes)
        assert changes is not None
        aims.against_zstd(report, compare(report, changes, rounds))
        del changes
        halves = bfloat16(traces, nbytes // 8)
        assert halves is not None
        aims.exact_bfloat16(report, compare(report, halves, rounds))
        del halves
    with _section("saves"):
        _saves(report, traces, nbytes, rounds)
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(report.lines).strip() + "\n")
    return int(report.failed > 0)


def _saves(report: Report, traces: Traces, nbytes: int, rounds: int) -> None:
    saves.chain(report, nbytes // 4, rounds)
    saves.many_small(report, min(10_000, max(1, nbytes >> 12)), 1000, 2 * rounds + 1)
    states = adam(traces, nbytes)
    if states is None:
        report.say("\nLeft out for want of a trace with Adam's moments: whole states.")
        return
    compare(report, as_set("a whole Adam state, tensor by tensor", states), rounds)
    saves.compare_saves(report, states, rounds)
    del states  # room for a larger one
    states = adam(traces, 4 * nbytes)
    assert states is not None
    saves.save_memory(report, states)
    breakdown.show(report, states)


def _introduce(report: Report, arguments: argparse.Namespace, warm: bool) -> None:
    report.say("# Benchmarks")
    report.say("\n`make bench` made this page with `benches/compare.py`.")
    report.say(NOTES)
    report.say(f"- CPU: {cpu()[0]}")
    report.say(
        f"- ckptz {ckptz.codec.__version__}, NumPy {np.__version__}, {arguments.mb} MiB sets"
    )
    if not warm:
        report.say("- malloc gives pages back here: who returns new memory pays for fresh pages")
    absent = missing()
    report.say(f"- not installed, and so not in the tables: {', '.join(absent) or 'none'}")


@contextmanager
def _section(name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    print(f"[{name}: {time.perf_counter() - start:.0f} s]", file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shared = ROOT.parent / "shared" / "traces"
    default = shared if shared.is_dir() else ROOT / "examples" / "data"
    parser.add_argument("traces", nargs="?", type=Path, default=default)
    parser.add_argument("--quick", action="store_true", help="16 MiB and one round: a check")
    parser.add_argument("--mb", type=int, help="MiB of each set (256)")
    parser.add_argument("--rounds", type=int, help="rounds of the slow races (3)")
    parser.add_argument("--markdown", type=Path, help="write the page there too")
    arguments = parser.parse_args()
    arguments.mb = arguments.mb or (16 if arguments.quick else 256)
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
