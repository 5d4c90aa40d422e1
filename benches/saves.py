"""Whole states through `CheckpointManager`, beside moonclip: speed, size, memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import ckptz
import numpy as np
from aims import HEAD
from arrays import Array, State, weights
from ckptz import codec
from ckptz.layers import nbytes_of, whole
from ckptz.restore import OpenChain
from ckptz.state import flatten
from figures import Report
from peers import load_peer
from savers import CkptzSaver, MoonclipSaver, Saver, folder
from timing import Contender, peak_memory, race

MIB = 1 << 20
PROMISED_ROOM = 64 * MIB


def compare_saves(report: Report, states: tuple[State, State], rounds: int) -> None:
    """Delta saves and restores of a whole Adam state."""
    nbytes = sum(array.nbytes for array in states[0].values())
    with folder() as top:
        savers: list[Saver] = [
            CkptzSaver("ckptz", top, states, "lossy", "none"),
            CkptzSaver("ckptz, 2 threads", top, states, "lossy", "none", threads=2),
            CkptzSaver("ckptz, exact latest", top, states, "lossy", "latest"),
            CkptzSaver("ckptz, exact policy", top, states, "exact", "none"),
        ]
        moonclip = load_peer("moonclip")
        if moonclip is not None:
            savers.append(MoonclipSaver(top, states, moonclip))
        for saver in savers:
            saver.start()
            saver.save()
            saver.check()
        room = {key: np.empty_like(array) for key, array in states[0].items()}
        copy = Contender("memcpy", lambda: [np.copyto(room[k], a) for k, a in states[0].items()])
        sides = [saver.sides() for saver in savers]
        race([copy, *(side for pair in sides for side in pair)], rounds)
        sizes = [saver.size() for saver in savers]
    rows: list[list[object]] = [["memcpy", nbytes / copy.seconds / 1e9, "-", "-", "100", "-"]]
    for (save, restore), size in zip(sides, sizes, strict=True):
        rows.append(
            [
                save.name,
                nbytes / save.seconds / 1e9,
                nbytes / restore.seconds / 1e9,
                nbytes / size,
                100 * copy.seconds / save.seconds,
                100 * copy.seconds / restore.seconds,
            ]
        )
    head = ["saver", "save GB/s", "restore GB/s", "ratio", "save % of memcpy"]
    head.append("restore % of memcpy")
    report.table(f"A delta of a whole Adam state, {nbytes / 1e6:.0f} MB", head, rows)
    _save_ratios(
        report, {pair[0].name: (*pair, size) for pair, size in zip(sides, sizes, strict=True)}
    )


def _save_ratios(report: Report, found: dict[str, tuple[Contender, Contender, int]]) -> None:
    plain, latest = found["ckptz"], found["ckptz, exact latest"]
    rows: list[list[object]] = [
        [
            "save with the residual of exact='latest' against without, times as long",
            latest[0].seconds / plain[0].seconds,
            "-",
        ]
    ]
    peer = found.get("moonclip")
    if peer is not None:
        for name in ("ckptz", "ckptz, exact policy"):
            save, restore, size = found[name]
            rows += [
                [
                    f"{name} against moonclip: save, times faster",
                    peer[0].seconds / save.seconds,
                    "-",
                ],
                [f"{name} against moonclip: restore", peer[1].seconds / restore.seconds, "-"],
                [f"{name} against moonclip: times smaller", peer[2] / size, "-"],
            ]
    report.table("Saves against each other", HEAD, rows)


def chain(report: Report, nbytes: int, rounds: int) -> None:
    """Restore a snapshot 32 deltas away from a full one, against one decode of such a delta."""
    data = weights(nbytes)
    step = data.targets[0] - data.bases[0]
    array = data.bases[0].copy()
    with folder() as top, ckptz.CheckpointManager(top, exact="none", threads=1) as manager:
        manager.save(0, {"w": array})
        for number in range(1, 33):
            step = np.roll(step, 12_345)
            array += step
            manager.save(number, {"w": array})
        before = manager.restore(31)["w"]
        coded = ckptz.codec.encode(array, before.copy(), "lossy", threads=1)
        content = before.copy()
        decode = Contender(
            "decode",
            lambda: ckptz.codec.decode(coded, content, threads=1),
            lambda: np.copyto(content, before),
        )
        full = Contender("restore of a full snapshot", lambda: manager.restore(0))
        restore = Contender("restore", lambda: manager.restore(32))
        with opened(manager, 32) as (last_only, each):
            race([decode, full, restore, last_only, each], rounds)
    rows: list[list[object]] = [
        [
            "restore of 32 deltas and their full snapshot, in decodes",
            restore.seconds / decode.seconds,
        ],
        ["restore of the full snapshot alone, in decodes", full.seconds / decode.seconds],
        ["each delta, in decodes", (restore.seconds - full.seconds) / 32 / decode.seconds],
        [
            "a content sum, taken of a layer in cache, in percent of decoding it",
            100 * (each.seconds - last_only.seconds) / 32 / (last_only.seconds / 33),
        ],
    ]
    report.table(
        f"A chain of 32 deltas, {nbytes / 1e6:.0f} MB", HEAD, [[*row, "-"] for row in rows]
    )


@contextmanager
def opened(manager: ckptz.CheckpointManager, step: int) -> Iterator[tuple[Contender, Contender]]:
    """Yield decoding a step's stored bytes with the content sums of the last layer, and of all."""
    store = manager._store
    with OpenChain.of_store(store, store.steps()[step][0]) as chain:
        node = chain.schema.tensors[0]
        made = whole(0, node, codec.empty_bytes(nbytes_of(node)))
        (window,) = chain._plan.chain.windows([(0, made.start, made.stop)], 1 << 40)
        readers = chain._files.readers
        stored = [readers[file].read(at, length) for file, at, length in window.segments]
        outputs = [(0, made.start, made.stop, made.out)]

        def decode(check_each: bool) -> None:
            chain._plan.chain.decode(window, stored, outputs, 1, check_each)

        yield Contender("last", lambda: decode(False)), Contender("each", lambda: decode(True))


def many_small(report: Report, tensors: int, elements: int, rounds: int) -> None:
    """Many small tensors, each an array of its own or a view of one, against one as large."""
    data = weights(4 * tensors * elements)
    pair = (data.targets[0], data.bases[0])
    states = {
        "own": tuple({key: view.copy() for key, view in _cut(a, tensors).items()} for a in pair),
        "views": tuple(_cut(array, tensors) for array in pair),
        "one": tuple({"w": array} for array in pair),
    }
    with folder() as top:
        savers = {n: CkptzSaver(n, top, (s[0], s[1]), "lossy", "none") for n, s in states.items()}
        sides = {name: saver.sides() for name, saver in savers.items()}
        for saver in savers.values():
            saver.start()
            saver.save()
        walk = Contender("walk", lambda: flatten(savers["own"].new))
        race([walk, *(side for pair in sides.values() for side in pair)], rounds)
    (save, restore), (save_views, _), (save_one, restore_one) = sides.values()
    rows: list[list[object]] = [
        ["save, times as long as of one", save.seconds / save_one.seconds],
        ["save less the walk over the tree", (save.seconds - walk.seconds) / save_one.seconds],
        ["walk over the tree, of the save's time", walk.seconds / save.seconds],
        ["save where all are views of one array", save_views.seconds / save_one.seconds],
        ["restore, times as long as of one", restore.seconds / restore_one.seconds],
    ]
    title = f"{tensors:,} tensors of {elements:,} float32 against one of {tensors * elements:,}"
    report.table(title, HEAD, [[*row, "-"] for row in rows])


def _cut(array: Array, tensors: int) -> State:
    return {f"layer{n}/w": piece for n, piece in enumerate(np.split(array, tensors))}


def save_memory(report: Report, states: tuple[State, State]) -> None:
    """Peak memory of saves over what was held before, against the promise."""
    new, old = states
    nbytes = sum(array.nbytes for array in new.values())
    rows: list[list[object]] = []
    with folder() as top, ckptz.CheckpointManager(top, threads=1) as manager:
        steps = (("full", old, nbytes), ("delta with a residual", new, 0))
        for step, (name, state, base) in enumerate(steps):
            _, peak = peak_memory(lambda step=step, state=state: manager.save(step, state))
            stats = manager.stats()
            coded = max(tensor.bytes for tensor in stats.tensors.values())
            promised = (base + coded + PROMISED_ROOM) / MIB
            rows.append([name, "-" if peak is None else f"{peak / MIB:.0f}", f"<= {promised:.0f}"])
    title = f"Peak memory of a save of {nbytes / MIB:.0f} MiB, in MiB: base + one coded tensor + 64"
    report.table(title, HEAD, rows)
