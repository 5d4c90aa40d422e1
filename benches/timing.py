"""Times that may be compared: pages warm for all sides, rounds interleaved, medians."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_CLEAR_REFS = Path("/proc/self/clear_refs")


def _nothing() -> None:
    pass


@dataclass
class Contender:
    """Work in a race. `before` is not timed: it brings the buffers back as they were."""

    name: str
    work: Callable[[], Any]
    before: Callable[[], Any] = _nothing
    times: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return statistics.median(self.times)

    def once(self) -> None:
        self.before()
        start = time.perf_counter()
        self.work()
        self.times.append(time.perf_counter() - start)


def race(contenders: Sequence[Contender], rounds: int) -> None:
    """Run all in turn, `rounds` times; a round before that warms the pages and is not counted."""
    gc.collect()
    for number in range(rounds + 1):
        for contender in contenders:
            contender.once()
            if number == 0:
                contender.times.clear()


def keep_pages() -> bool:
    """Have malloc keep what is freed, for all sides alike; return whether this libc can.

    Else whoever returns new memory pays for fresh pages (about a second a GB), and not for work.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(_M_MMAP_MAX, 0)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, -1))


def peak_memory(work: Callable[[], Any]) -> tuple[Any, int | None]:
    """Return what `work` gives, and its peak of memory over what was held before, in bytes.

    The peak is None where the system does not tell it.
    """
    gc.collect()
    if not os.access(_CLEAR_REFS, os.W_OK):
        return work(), None
    ctypes.CDLL(None).malloc_trim(0)
    _CLEAR_REFS.write_text("5")  # the peak is counted from here
    before = _status("VmRSS:")
    result = work()
    return result, max(0, _status("VmHWM:") - before)


def _status(name: str) -> int:
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith(name))


def cpu() -> tuple[str, bool]:
    """Return this CPU's name, and whether it splits AVX2 in halves (Zen 1 and its copies)."""
    known: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            known.setdefault(name.strip(), value.strip())
    except OSError:
        return platform.processor() or platform.machine(), False
    family, model = int(known.get("cpu family", 0)), int(known.get("model", 0))
    name = known.get("model name") or platform.machine()
    text = f"{name} (family {family}, model {model}), {os.cpu_count()} cores"
    return text, "AuthenticAMD" in known.get("vendor_id", "") and family == 23 and model < 0x30
