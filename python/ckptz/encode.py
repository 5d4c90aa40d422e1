"""The tensors of a state, through the core, into a file's payload."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from . import codec
from .errors import check_process
from .file import PAIRS, PREDICTED_BASES, FileWriter
from .layers import shape_of
from .schema import Schema
from .state import contiguous, is_contiguous

__all__ = ["Encoded", "encode_tensors", "sums_now"]

Bytes = NDArray[np.uint8]
# The number of a formula, and the records that it reads.
Predicted = tuple[int, list[int]]

# Coded bytes are handed over in pieces of this size.
_OUT_BYTES = 8 << 20
# Copies of arrays that are not contiguous, at once (or one array).
_COPY_BYTES = 16 << 20

_buffers = threading.local()


class Encoded(msgspec.Struct, frozen=True):
    """The records of a snapshot; their chunks are in the file."""

    headers: bytes
    lossy: bool
    finite: bool
    sums: list[int]
    """Of the arrays, if they are watched: the same as long as these are."""


def encode_tensors(
    file: FileWriter,
    schema: Schema,
    arrays: Sequence[NDArray[Any]],
    bases: Sequence[Bytes | None],
    specs: Sequence[codec.Spec],
    *,
    stale: Collection[int] = (),
    residual: bool = False,
    known: Sequence[Predicted | None] = (),
    search: bool = False,
    watched: bool = False,
    threads: int,
    progress: Callable[[int], None] | None = None,
) -> Encoded:
    """Write the chunks of all tensors; bases become the reconstructions (residual: they stay).

    stale: numbers of tensors that are left as their bases are.
    known: how the records of the snapshot before were predicted, if they are the same tensors.
    search: whether to look for more tensors that others predict.
    watched: whether to take sums of the arrays: before they are coded, of a residual after that. If
        a snapshot's and its residual's are the same, nothing was changed from the one to the other.
    """
    headers, lossy, finite, sums = [], False, True, list[int]()
    if not residual and _may_pair(schema, bases, specs):
        file.features |= PAIRS
    for start, targets in _segments(arrays, {number: bases[number] for number in stale}):
        part = slice(start, start + len(targets))
        elements = [shape_of(node)[0] for node in schema.tensors[part]]
        # What the file's header says cannot be taken back.
        predict = start == 0 or bool(file.features & PREDICTED_BASES)
        encoder = codec.SnapshotEncoder(
            targets,
            list(bases[part]),
            elements,
            list(specs[part]),
            residual,
            threads,
            start,
            list(known[part]) if predict else [],
            search and predict,
            watched,
        )
        if encoder.predicts:
            file.features |= PREDICTED_BASES
        _drain(encoder, file, progress, beside=threads > 1)
        found = codec.finish(encoder)
        headers.append(found[0])
        lossy, finite = lossy or found[1], finite and found[2]
        sums += found[3]
    if watched and stale:
        # What was coded of these were copies of their bases.
        numbers = sorted(stale)
        own = [shape_of(schema.tensors[number])[0] for number in numbers]
        taken = _sums_now([arrays[n] for n in numbers], own, [specs[n] for n in numbers], threads)
        for number, one in zip(numbers, taken, strict=True):
            sums[number] = one
    return Encoded(b"".join(headers), lossy, finite, sums)


def _may_pair(schema: Schema, bases: Sequence[Bytes | None], specs: Sequence[codec.Spec]) -> bool:
    tensors = zip(schema.tensors, bases, specs, strict=True)
    # The bytes first, which are at hand: most tensors have too few.
    return any(
        base is not None and spec.may_pair(base.size) and spec.may_pair(shape_of(node)[1])
        for node, base, spec in tensors
    )


def sums_now(
    schema: Schema, arrays: Sequence[NDArray[Any]], specs: Sequence[codec.Spec], threads: int
) -> list[int]:
    """Return the sums that watching the arrays would find now."""
    elements = [shape_of(node)[0] for node in schema.tensors]
    return _sums_now(arrays, elements, specs, threads)


def _sums_now(
    arrays: Sequence[NDArray[Any]],
    elements: Sequence[int],
    specs: Sequence[codec.Spec],
    threads: int,
) -> list[int]:
    sums: list[int] = []
    for start, targets in _segments(arrays):
        part = slice(start, start + len(targets))
        sums += codec.content_sums(targets, list(elements[part]), list(specs[part]), threads)
    return sums


def _drain(
    encoder: codec.SnapshotEncoder,
    file: FileWriter,
    progress: Callable[[int], None] | None,
    *,
    beside: bool,
) -> None:
    """Write all that is coded. beside: what is full is written while the next is filled."""
    process = os.getpid()
    # Not to be found by a save of something else from the callback or a signal's handler.
    rooms: list[Bytes] = _buffers.__dict__.pop("rooms", [])
    while len(rooms) < 1 + beside:
        rooms.append(np.empty(_OUT_BYTES, np.uint8))
    out, spare = rooms[0], rooms[-1]
    wait: Callable[[], object] | None = None
    try:
        while written := codec.fill(encoder, out, file.crc):
            if wait is not None:
                before, wait = wait, None
                before()
            data = out[:written]
            # Less than half full is the last one.
            if beside and 2 * written >= out.size:
                wait = file.begin_payload(data)
                out, spare = spare, out
            else:
                file.write_payload(data, summed=True)
            if progress is not None:
                progress(written)
            check_process(process, "this save")
    except BaseException:
        if wait is not None and os.getpid() == process:
            # The file is of no use: what else is wrong with it does not matter.
            with contextlib.suppress(Exception):
                wait()
        raise
    if wait is not None:
        wait()
    _buffers.rooms = rooms


def _segments(
    arrays: Sequence[NDArray[Any]], stale: Mapping[int, Bytes | None] | None = None
) -> Iterator[tuple[int, list[Bytes]]]:
    """Yield the arrays as bytes, in runs that need copies of `_COPY_BYTES` or one array at most."""
    start = copied = 0
    run: list[Bytes] = []
    for number, array in enumerate(arrays):
        held = None if stale is None else stale.get(number)
        if held is not None or not is_contiguous(array):
            if run and copied + array.nbytes > _COPY_BYTES:
                yield start, run
                start, run, copied = number, [], 0
            copied += array.nbytes
        # The core may not be given one memory both to read and to write.
        run.append(held.copy() if held is not None else codec.bytes_to_read(contiguous(array)))
    yield start, run
