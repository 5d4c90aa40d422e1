"""Copies of the caller's tensors, for a save that goes on after `save` has returned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import codec
from .state import FlatState, contiguous, is_contiguous

__all__ = ["Staging"]

Array = NDArray[Any]


class Staging:
    """Buffers for one state, used again for the next: fresh memory costs more than the copy.

    Whoever stages a state must be done with the one before.
    """

    def __init__(self, threads: int) -> None:
        """Say on how many threads to copy; there are no buffers yet."""
        self._threads = threads
        self._schema = b""
        self._rooms: list[Array] = []
        self._bytes: list[codec.Bytes] = []
        self.written = 0
        """Bytes that the last state had other than the one before it."""

    def stage(self, flat: FlatState) -> FlatState:
        """Copy a state's tensors, as C-contiguous native arrays; only what has changed is written.

        The arrays returned are the buffers themselves, which the next call changes.
        """
        if flat.schema != self._schema:
            self._schema = b""
            self._bytes.clear()
            self._rooms = self._rooms_for(flat.arrays)
            self._bytes = [codec.as_bytes(room) for room in self._rooms]
            self._schema = flat.schema
        sources, rooms, written = [], [], 0
        for array, room, raw in zip(flat.arrays, self._rooms, self._bytes, strict=True):
            if is_contiguous(array):
                sources.append(codec.bytes_to_read(contiguous(array)))
                rooms.append(raw)
            else:
                np.copyto(room, array)
                written += array.nbytes
        self.written = written + codec.copy_changed(sources, rooms, self._threads)
        return FlatState(flat.schema, list(self._rooms), flat.values, own=True)

    def _rooms_for(self, arrays: Sequence[Array]) -> list[Array]:
        """Find buffers of the right shapes among the old ones; of the rest make new ones."""
        old = defaultdict(list)
        rooms, self._rooms = self._rooms[::-1], []
        while rooms:
            old[rooms[-1].shape, rooms[-1].dtype].append(rooms.pop())
        wanted = [(array.shape, array.dtype.newbyteorder("=")) for array in arrays]
        found = [old[kind].pop(0) if old[kind] else None for kind in wanted]
        # What is of no use goes before anything new is made.
        old.clear()
        # Not `np.empty`, which takes the size 0 of an empty text for "any size".
        pairs = zip(found, wanted, strict=True)
        return [np.ndarray(*kind) if room is None else room for room, kind in pairs]

    def release(self) -> None:
        """Give the memory back."""
        self._schema, self._rooms, self._bytes = b"", [], []
