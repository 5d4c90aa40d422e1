"""One array through `ckptz.codec` against memcpy of it: aims beside what is measured."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import ckptz
import numpy as np
from arrays import Array, DataSet, sparse, weights
from figures import Report
from timing import Contender, race

HEAD = ["figure", "measured", "aim"]

# Percent of memcpy, on Zen 3 or newer and on Zen 1 (docs/design.md).
LOSSY_ENCODE = (65, 33)
PAPER_ENCODE = (50, 25)
DECODE = (100, 55)
TOKENS = ((90, 55), (150, 85))
LOSSLESS = ((90, 45), (75, 45))
IMPORT_MS = 40


class OneArray:
    """One target and base, with buffers that stay."""

    def __init__(self, data: DataSet) -> None:
        self.target, self.base = data.targets[0], data.bases[0]
        self.content = np.empty_like(self.target)
        self.room = np.empty(self.target.nbytes + self.target.nbytes // 8 + 4096, np.uint8)

    def reset(self) -> None:
        np.copyto(self.content, self.base)

    def copy(self) -> Contender:
        return Contender("memcpy", lambda: np.copyto(self.content, self.target))

    def sides(self, rule: str, *, base: bool = True, threads: int = 1) -> list[Contender]:
        """Return encoding and decoding, in place; what comes back has been checked."""
        codec = ckptz.codec
        against = self.content if base else None

        def encode() -> Any:
            return codec.encode(self.target, against, rule, out=self.room, threads=threads)

        self.reset()
        coded = bytes(encode())
        expected = self.content.copy() if base else self.target
        self.reset()
        codec.decode(coded, self.content)
        assert np.array_equal(self.content.view(np.uint8), expected.view(np.uint8)), rule

        def decode() -> Any:
            return codec.decode(coded, self.content, threads=threads)

        return [Contender("encode", encode, self.reset), Contender("decode", decode, self.reset)]


def show(report: Report, plain: DataSet, deltas: DataSet, rounds: int, zen1: bool) -> None:
    """Print the rows for one array in one thread."""
    report.table(
        f"One array of {plain.targets[0].size >> 20} Mi float32, one thread, in percent of memcpy",
        HEAD,
        [
            *_lossy(deltas, rounds, zen1),
            *_sides(
                "tokens at 99% zeros", sparse(plain, 0.01), "lossy", True, TOKENS, rounds, zen1
            ),
            *_sides("lossless f32", plain, "exact", False, LOSSLESS, rounds, zen1),
        ],
    )


def _lossy(data: DataSet, rounds: int, zen1: bool) -> list[list[object]]:
    one = OneArray(data)
    copy, default, paper = one.copy(), one.sides("lossy"), one.sides("paper:3")
    subtract = Contender("", lambda: np.subtract(one.target, one.base, out=one.content))
    race([copy, subtract, *default, *paper], rounds)
    return [
        [f"np.subtract of {data.name}", _percent(copy, subtract), "-"],
        ["encode, default (lossy, in place)", _percent(copy, default[0]), LOSSY_ENCODE[zen1]],
        ["encode, paper's mode (x=3)", _percent(copy, paper[0]), PAPER_ENCODE[zen1]],
        ["decode + apply in place", _percent(copy, default[1]), DECODE[zen1]],
        ["decode + apply, paper's mode", _percent(copy, paper[1]), DECODE[zen1]],
    ]


def _sides(
    name: str,
    data: DataSet,
    rule: str,
    base: bool,
    aims: tuple[tuple[int, int], tuple[int, int]],
    rounds: int,
    zen1: bool,
) -> list[list[object]]:
    one = OneArray(data)
    copy, sides = one.copy(), one.sides(rule, base=base)
    race([copy, *sides], rounds)
    pairs = zip(sides, aims, strict=True)
    return [[f"{name}, {s.name}", _percent(copy, s), aim[zen1]] for s, aim in pairs]


def _percent(copy: Contender, other: Contender) -> float:
    return 100 * copy.seconds / other.seconds


def threads(report: Report, rounds: int) -> None:
    """Two threads against one where the arrays are in cache: 4 Mi elements, target and base."""
    one = OneArray(weights(4 << 21))
    single, double = one.sides("lossy"), one.sides("lossy", threads=2)
    race([*single, *double], rounds)
    pairs = zip(single, double, strict=True)
    rows: list[list[object]] = [[s.name, s.seconds / d.seconds, "about 2"] for s, d in pairs]
    report.table("Two threads against one, 4 Mi float32 in all, times faster", HEAD, rows)


def content_sums(report: Report, array: Array, rounds: int) -> None:
    """What a sum over the content would cost as a pass of its own (it is taken in the loops)."""
    out = np.empty_like(array)
    copy = Contender("memcpy", lambda: np.copyto(out, array))
    raw = array.tobytes()
    own_pass = Contender("sum", lambda: ckptz.codec.content_sum(raw))
    race([copy, own_pass], rounds)
    report.say(
        f"\n- a content sum in a pass of its own: {_percent(copy, own_pass):.0f}% of memcpy's speed"
    )


def importing(report: Report, rounds: int) -> None:
    """Import ckptz in processes that have numpy already, bytecode compiled."""
    code = (
        "import time, numpy; start = time.perf_counter(); import ckptz; "
        "print(time.perf_counter() - start)"
    )
    with tempfile.TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def once() -> float:
            command = [sys.executable, "-c", code]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
            return float(done.stdout)

        once()
        found = 1000 * statistics.median(once() for _ in range(rounds))
    report.table("Importing", HEAD, [["import ckptz after numpy, ms", found, f"<= {IMPORT_MS}"]])


def against_zstd(report: Report, entrants: dict[str, Any]) -> None:
    """Lossy and exact deltas against zstd -1 on the same float32 deltas, computed beforehand."""
    peer = entrants.get("zstd -1")
    if peer is None:
        return
    rows: list[list[object]] = []
    for name in ("ckptz lossy", "ckptz exact delta", "ckptz exact, alone"):
        own = entrants[name]
        rows.append(
            [
                name,
                peer.encode.seconds / own.encode.seconds,
                peer.decode.seconds / own.decode.seconds,
                own.ratio / peer.ratio,
            ]
        )
    head = ["against zstd -1", "encode, times faster", "decode, times faster", "times smaller"]
    report.table("Float32 deltas against zstd -1", head, rows)


def exact_bfloat16(report: Report, entrants: dict[str, Any]) -> None:
    """Exact bf16 deltas against the peers made for them."""
    own = entrants["ckptz exact delta"]
    rows: list[list[object]] = [["ckptz exact delta", own.ratio, 1.0, 1.0]]
    for name in ("z4ai delta", "fireworks arc_v3"):
        peer = entrants.get(name)
        if peer is not None:
            faster: Callable[[str], float] = lambda side, peer=peer: (  # noqa: E731
                getattr(peer, side).seconds / getattr(own, side).seconds
            )
            rows.append([name, peer.ratio, faster("encode"), faster("decode")])
    head = ["exact bf16 deltas", "ratio", "ckptz encodes times faster", "decodes times faster"]
    report.table("Exact bf16 deltas", head, rows)
