"""Where the time of a save and of a restore goes, by timing the calls between the layers."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import ckptz
import numpy as np
from arrays import State
from figures import Report
from savers import folder

# A CRC of what is coded is taken as it is coded.
SAVE_PARTS = ["walk, schema", "base", "encode, CRC", "write"]
# The core reads large pieces by itself.
RESTORE_PARTS = ["read by Python", "read and decode"]


class Stopwatch:
    """Seconds by part; a call within another counts for the inner one alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = 0.0

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._charge()
            self._open.append(part)
            try:
                return function(*args, **kwargs)
            finally:
                self._charge()
                self._open.pop()

        return call

    def _charge(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


def _timed_class(watch: Stopwatch, part: str, kind: Any, *methods: str) -> Callable[..., Any]:
    """Return what makes objects of a compiled class whose methods are timed, and so is making."""

    class Timed:
        def __init__(self, *args: Any) -> None:
            self._real = watch.timed(part, kind)(*args)
            for name in methods:
                setattr(self, name, watch.timed(part, getattr(self._real, name)))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    return Timed


@contextmanager
def watching() -> Iterator[Stopwatch]:
    """Time the calls from one layer of the package into the next."""
    from ckptz import codec, saving, writer
    from ckptz.storage import files, local

    watch = Stopwatch()
    compiled = [
        ("SnapshotEncoder", "encode, CRC", ("fill", "finish")),
        ("Chain", "read and decode", ("windows", "decode")),
    ]
    calls = [
        (saving, "flatten", "walk, schema"),
        (writer.SnapshotWriter, "_schema_of", "walk, schema"),
        (writer.Specs, "of", "walk, schema"),
        (writer.Sources, "of", "base"),
        (files.Writer, "write", "write"),
        (files.Writer, "sync", "write"),
        (files.Writer, "rename", "write"),
        (files.Reader, "read", "read by Python"),
        (local.LocalStorage, "sync", "write"),
    ]
    with ExitStack() as stack:
        for name, part, methods in compiled:
            timed = _timed_class(watch, part, getattr(codec, name), *methods)
            stack.enter_context(mock.patch.object(codec, name, timed))
        for owner, name, part in calls:
            timed = _method(watch, part, getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, timed))
        yield watch


def _method(watch: Stopwatch, part: str, function: Any) -> Any:
    """Return a plain function, which binds as a method where the original did."""
    timed = watch.timed(part, function)
    return lambda *args, **kwargs: timed(*args, **kwargs)


def time_of(work: Callable[[], Any]) -> tuple[float, dict[str, float]]:
    with watching() as watch:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start, dict(watch.seconds)


def show(report: Report, states: tuple[State, State]) -> None:
    """Print where the time goes of a full save, of deltas, and of a restore, in one thread."""
    new, old = states
    nbytes = sum(array.nbytes for array in new.values())
    room = {key: np.empty_like(array) for key, array in new.items()}
    works: list[tuple[str, Callable[[], Any]]] = []
    reading: dict[str, float] = {}
    for _ in range(2):  # the second time pages are warm
        works = [("memcpy", lambda: [np.copyto(room[key], a) for key, a in new.items()])]
        found = [(name, *time_of(work)) for name, work in works]
        with folder() as top:
            for exact in ("none", "latest"):
                with ckptz.CheckpointManager(top / exact, exact=exact, threads=1) as manager:  # type: ignore[arg-type]
                    works = [
                        ("full save", lambda m=manager: m.save(0, old)),
                        (f"delta, exact={exact!r}", lambda m=manager: m.save(1, new)),
                        (f"restore, exact={exact!r}", lambda m=manager: m.restore()),
                    ]
                    skipped = 1 if exact == "latest" else 0
                    timed = [(name, *time_of(work)) for name, work in works]
                    found += timed[skipped:]
                reading[exact] = _reading(top / exact)
    parts = [*SAVE_PARTS, *RESTORE_PARTS]
    rows: list[list[object]] = []
    for name, total, seconds in found:
        other = total - sum(seconds.values())
        shares = [1000 * seconds.get(part, 0.0) for part in parts]
        rows.append(
            [name, *(f"{1000 * total:.0f}",), *(f"{x:.1f}" for x in (*shares, 1000 * other))]
        )
    title = f"Where the time goes, {nbytes / 2**20:.0f} MiB of an Adam state, one thread, ms"
    report.table(title, ["work", "total", *parts, "other"], rows)
    alone = ", ".join(f"{1000 * seconds:.0f} ms (exact={e!r})" for e, seconds in reading.items())
    report.say(f"\n- what a restore reads, read alone in pieces of 256 KiB: {alone}")
    speed = _crc_speed()
    report.say(f"\n- a CRC in a pass of its own: {speed:.1f} GB/s of coded bytes")


def _reading(store: Path) -> float:
    """Return seconds of reading the files of a store as the core does: into memory that is warm."""
    room = memoryview(bytearray(1 << 18))

    def read() -> None:
        for path in store.glob("*.ckptz"):
            with path.open("rb", buffering=0) as file:
                while file.readinto(room):
                    pass

    return min(time_of(read)[0] for _ in range(3))


def _crc_speed() -> float:
    """Return GB/s of a CRC over memory that is in no cache."""
    content = np.arange(1 << 23, dtype=np.uint64).view(np.uint8)
    seconds, _ = min(time_of(lambda: ckptz.codec.crc_of(content)) for _ in range(3))
    return float(content.nbytes / seconds / 1e9)
