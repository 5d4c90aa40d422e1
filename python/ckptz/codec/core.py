"""The compiled core, for the rest of the package, and what a rule asks of it."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._core import Chain as Chain
from .._core import ChangedError as ChangedError
from .._core import Crc as Crc
from .._core import Merge as Merge
from .._core import Payload as Payload
from .._core import ReadError as ReadError
from .._core import RecordError as RecordError
from .._core import SnapshotEncoder as SnapshotEncoder
from .._core import Spec as Spec
from .._core import Window as Window
from ..dtypes import layout
from ..errors import StateChangedError
from ..policy import DEFAULT_BITS, DEFAULT_LEVELS, Rule, is_batch_statistic

Bytes = NDArray[np.uint8]

__version__: str = _core.__version__
compress = _core.compress
content_sum = _core.content_sum
content_sums = _core.content_sums
copy_changed = _core.copy_changed
decompress = _core.decompress
describe = _core.describe
digest = _core.digest
predictions = _core.predictions
useless_records = _core.useless_records

# Record headers of a snapshot in a file, the tensor of each record, records that are not there, and
# what they are part of.
FileSnapshot = tuple[bytes, list[int], list[int], int]
OF_FULL, OF_DELTA, OF_RESIDUAL = 0, 1, 2

_ELEMENTS = {"f16": 0, "bf16": 1, "f32": 2, "f64": 3}
_OPAQUE = 16
_LARGEST_OPAQUE = 255

_MOST_THREADS = 1024

_CHUNK_LOG2 = 16
_LEAST_ELEMENTS = 16  # Smaller tensors are exact: tables would take more than they save.


def default_threads(threads: int | None = None) -> int:
    """Return how many threads to use: as told, or `CKPTZ_NUM_THREADS`, or the usable cores."""
    if threads is None:
        text = os.environ.get("CKPTZ_NUM_THREADS", "")
        if not (text.isascii() and text.isdecimal()):
            return min(_usable_cores(), _MOST_THREADS)
        threads = int(text)
    if type(threads) is not int or not 1 <= threads <= _MOST_THREADS:
        raise ValueError(f"threads={threads!r} is not an integer from 1 to {_MOST_THREADS}")
    return threads


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS has no such thing


def element_number(element_type: str, itemsize: int) -> int:
    """Return the core's number for an element type of the format."""
    if element_type == "bytes":
        # Items too long for the core are cut into bytes: only transposing would tell a difference.
        return _OPAQUE + (itemsize if 1 <= itemsize <= _LARGEST_OPAQUE else 1)
    return _ELEMENTS[element_type]


def element_count(element: int, nbytes: int) -> int:
    """Return how many elements of this type a tensor of `nbytes` has."""
    size = (2, 2, 4, 8)[element] if element < _OPAQUE else element - _OPAQUE
    return nbytes // size


EXACT = Spec.exact(links=True, predict=True, chunk_log2=_CHUNK_LOG2)
_EXACT_ALONE = Spec.exact(links=True, predict=False, chunk_log2=_CHUNK_LOG2)
"""What is asked of the core for every tensor that is to be exact: these very objects."""


def is_exact(spec: Spec) -> bool:
    """Whether a spec asks for a tensor bit for bit."""
    return spec is EXACT or spec is _EXACT_ALONE


@lru_cache(maxsize=4096)
def spec_of(rule: Rule | None, small: bool, batch_statistic: bool) -> Spec:
    """Return what a rule asks of the core; `small`: a tensor without dimensions."""
    predict = rule is None or rule.base == "auto"
    if rule is None or rule.mode == "exact":
        return EXACT if predict else _EXACT_ALONE
    if rule.mode == "paper":
        return _paper_spec(rule)
    if small or (batch_statistic and rule.mode == "auto"):
        return EXACT if predict else _EXACT_ALONE
    return Spec.lossy(
        levels=rule.levels or DEFAULT_LEVELS,
        bits=None,
        non_negative_levels=rule.non_negative_levels,
        domain=rule.domain,
        representative=rule.representative,
        refinement=rule.refinement,
        base="auto",
        coding=rule.coding,
        exact_fallback=True,
        least_elements=_LEAST_ELEMENTS,
        links=True,
        predict=predict,
        chunk_log2=_CHUNK_LOG2,
        max_error=rule.max_error,
        max_rel_error=rule.max_rel_error,
    )


def _paper_spec(rule: Rule) -> Spec:
    return Spec.lossy(
        levels=None,
        bits=rule.bits or DEFAULT_BITS,
        non_negative_levels=None,
        domain="value" if rule.domain == "auto" else rule.domain,
        representative=rule.representative,
        refinement=rule.refinement,
        base="previous",
        coding=rule.coding,
        exact_fallback=False,
        least_elements=0,
        links=False,
        predict=False,
        chunk_log2=_CHUNK_LOG2,
    )


def spec_for(rule: Rule | None, path: str, dtype: str, shape: tuple[int, ...]) -> Spec:
    """Return the spec of one tensor under the rule that matches it."""
    known = layout(dtype)
    never_lossy = known is None or known.element_type == "bytes" or known.per_entry > 1
    if never_lossy:
        rule = None
    return spec_of(rule, not shape, is_batch_statistic(path))


def as_bytes(array: NDArray[Any]) -> Bytes:
    """View a C-contiguous array as a run of bytes, without a copy."""
    if array.nbytes == 0:
        return np.empty(0, np.uint8)
    flat: Bytes = array.reshape(-1).view(np.uint8)
    return flat


def bytes_to_read(array: NDArray[Any]) -> Bytes:
    """View a C-contiguous array that nothing here writes to as a run of bytes, without a copy.

    The core asks of each array whether it shares memory with one that is written to, which takes
    the square of the time for many views of one array; what this returns is no view to it.
    """
    flat = as_bytes(array)
    return flat if array.base is None or not flat.size else np.frombuffer(flat.data, np.uint8)


def empty_bytes(size: int) -> Bytes:
    """Return fresh memory, aligned for every element type."""
    return np.empty(-(-size // 16), np.complex128).view(np.uint8)[:size]


def crc_of(content: Bytes) -> int:
    """Return the CRC of an array's bytes."""
    crc = _core.Crc()
    crc.update(content)
    return crc.value


def fill(encoder: SnapshotEncoder, room: Bytes, crc: Crc) -> int:
    """Write coded bytes to the room and return how many, 0 once there are no more.

    The CRC goes on over bytes as they are coded: it may be ahead of those that were returned, and
    is that of all of them once there are no more.
    Raises `StateChangedError` where a tensor is not what it was when its coding was planned.
    """
    try:
        return encoder.fill(room, crc)
    except ChangedError as error:
        raise StateChangedError(f"{error}: nothing is saved") from None


def finish(encoder: SnapshotEncoder) -> tuple[bytes, bool, bool, list[int]]:
    """Return the record headers, whether any is lossy, whether all floats are finite, and sums.

    The sums are those of the tensors, if they are watched.

    Raises `StateChangedError` as `fill` does.
    """
    try:
        return encoder.finish()
    except ChangedError as error:
        raise StateChangedError(f"{error}: nothing is saved") from None
