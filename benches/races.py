"""ckptz and its peers on the same arrays: speed, ratio and memory, checked after decoding."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from arrays import DataSet
from coders import Buffers, Coded, Coder, ckptz_coders
from figures import Report
from peers import peer_coders
from timing import Contender, peak_memory, race


@dataclass
class Entrant:
    """A coder in the race."""

    coder: Coder
    coded: Coded
    ratio: float
    peaks: tuple[int | None, int | None]
    encode: Contender
    decode: Contender


def enter(coder: Coder) -> Entrant:
    """Encode and decode once, check what comes back, and see how much memory that takes."""
    coder.before_encode()
    coded, at_encode = peak_memory(coder.encode)
    coded = coder.keep(coded)
    coder.before_decode()
    found, at_decode = peak_memory(lambda: coder.decode(coded))
    for array, expected in zip(found, coder.expected, strict=True):
        if not np.array_equal(_bytes(array), _bytes(expected)):
            raise AssertionError(f"{coder.name} on {coder.data.name}: not what was coded")
    return Entrant(
        coder,
        coded,
        coder.data.nbytes / coder.stored(coded),
        (at_encode, at_decode),
        Contender(coder.name, coder.encode, coder.before_encode),
        Contender(coder.name, lambda: coder.decode(coded), coder.before_decode),
    )


def _bytes(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return array.reshape(-1).view(np.uint8)
    return np.frombuffer(array, np.uint8)


def compare(report: Report, data: DataSet, rounds: int) -> dict[str, Entrant]:
    """Run a set through everything, and print the table."""
    shared = Buffers(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peers, about themselves
        entrants = [enter(c) for c in [*ckptz_coders(data, shared), *peer_coders(data)]]
        copy, subtract = _anchors(data, shared)
        sides = [x for e in entrants for x in (e.encode, e.decode)]
        race([copy, subtract, *sides], rounds)
    _table(report, data, entrants, copy, subtract)
    return {entrant.coder.name: entrant for entrant in entrants}


def _anchors(data: DataSet, shared: Buffers) -> tuple[Contender, Contender]:
    def copy() -> None:
        for out, array in zip(shared.content, data.targets, strict=True):
            np.copyto(out, array)

    def subtract() -> None:
        for out, target, base in zip(shared.content, data.targets, data.bases, strict=True):
            np.subtract(target, base, out=out)

    return Contender("memcpy", copy), Contender("np.subtract", subtract)


def _table(
    report: Report,
    data: DataSet,
    entrants: list[Entrant],
    copy: Contender,
    subtract: Contender,
) -> None:
    def rate(contender: Contender) -> str:
        return f"{data.nbytes / contender.seconds / 1e9:.3f}"

    def percent(contender: Contender) -> str:
        return f"{100 * copy.seconds / contender.seconds:.1f}%"

    rows: list[list[object]] = [
        [c.name, "targets", rate(c), "-", "-", percent(c), "-", "-", "-"] for c in (copy, subtract)
    ]
    for e in entrants:
        mib = ["-" if peak is None else f"{peak >> 20}" for peak in e.peaks]
        speeds = [rate(e.encode), rate(e.decode), e.ratio, percent(e.encode), percent(e.decode)]
        rows.append([e.coder.name, e.coder.of, *speeds, *mib])
    head = ["coder", "of", "encode GB/s", "decode GB/s", "ratio", "encode / memcpy"]
    head += ["decode / memcpy", "encode MiB", "decode MiB"]
    report.table(f"{data.name}, {data.nbytes / 1e6:.0f} MB", head, rows)
    _against_peers(report, entrants)


def _against_peers(report: Report, entrants: list[Entrant]) -> None:
    """How many times faster and smaller ckptz is than each peer."""
    ours = [e for e in entrants if e.coder.name.startswith("ckptz") and "2 thr" not in e.coder.name]
    peers = [e for e in entrants if not e.coder.name.startswith("ckptz")]
    if not peers:
        return
    rows: list[list[object]] = []
    for peer in peers:
        row: list[object] = [peer.coder.name]
        for own in ours:
            encode = peer.encode.seconds / own.encode.seconds
            decode = peer.decode.seconds / own.decode.seconds
            row.append(f"{encode:.3g} / {decode:.3g} / {own.ratio / peer.ratio:.3g}")
        rows.append(row)
    head = ["against", *(f"{own.coder.name}: encode / decode / ratio" for own in ours)]
    report.table("The same, as times faster and smaller than each peer", head, rows)
