"""What turns a set of arrays into bytes and back, and ckptz through its Python API.

In one thread unless the name says more, into the caller's buffers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ckptz
import numpy as np
from arrays import DataSet

Coded = list[Any]


class Coder:
    """Encodes a set and decodes it again.

    `encode` returns what is stored. `decode` fills or returns arrays that must then be equal to
    `expected`: the targets, unless it is lossy.
    """

    #: What the time and the ratio are of: "targets" or "deltas", which are arrays on their own.
    of = "targets"

    def __init__(self, name: str, data: DataSet) -> None:
        self.name = name
        self.data = data
        self.expected = data.targets

    def before_encode(self) -> None:
        """Bring the buffers back as they were; not timed."""

    def before_decode(self) -> None:
        """The same for `decode`."""

    def encode(self) -> Coded:
        raise NotImplementedError

    def decode(self, coded: Coded) -> list[Any]:
        raise NotImplementedError

    def keep(self, coded: Coded) -> Coded:
        """Return what is stored, in memory of its own."""
        return coded

    def stored(self, coded: Coded) -> int:
        return sum(memoryview(piece).nbytes for piece in coded)


class Buffers:
    """What all coders of a set share: one reconstruction, and room for coded bytes."""

    def __init__(self, data: DataSet) -> None:
        self.data = data
        self.content = [np.empty_like(array) for array in data.targets]
        self.room = [np.empty(a.nbytes + a.nbytes // 8 + 4096, np.uint8) for a in data.targets]

    def reset(self) -> None:
        for content, base in zip(self.content, self.data.bases, strict=True):
            np.copyto(content, base)


class Ckptz(Coder):
    """`ckptz.codec`. Without a base: each array on its own, exactly."""

    def __init__(
        self, name: str, data: DataSet, shared: Buffers, rule: str, *, base: bool, threads: int = 1
    ) -> None:
        super().__init__(name, data)
        self._shared, self._rule, self._base, self._threads = shared, rule, base, threads
        if not base:
            self.expected = data.alone
            self.of = "deltas" if data.deltas else "targets"

    def before_encode(self) -> None:
        self._shared.reset()

    before_decode = before_encode

    def encode(self) -> Coded:
        shared, encode = self._shared, ckptz.codec.encode
        contents = shared.content if self._base else [None] * len(self.expected)
        arrays = self.data.targets if self._base else self.expected
        return [
            encode(array, base, self._rule, out=room, threads=self._threads)
            for array, base, room in zip(arrays, contents, shared.room, strict=True)
        ]

    def keep(self, coded: Coded) -> Coded:
        if self._base:  # what a reader must have
            self.expected = [content.copy() for content in self._shared.content]
        return [bytes(piece) for piece in coded]

    def decode(self, coded: Coded) -> list[Any]:
        pairs = zip(coded, self._shared.content, strict=True)
        return [ckptz.codec.decode(piece, base, threads=self._threads) for piece, base in pairs]


def ckptz_coders(data: DataSet, shared: Buffers) -> Iterator[Coder]:
    """Yield ckptz in the ways that fit the set."""
    yield Ckptz("ckptz lossy", data, shared, "lossy", base=True)
    yield Ckptz("ckptz lossy, 2 threads", data, shared, "lossy", base=True, threads=2)
    yield Ckptz("ckptz exact delta", data, shared, "exact", base=True)
    yield Ckptz("ckptz exact, alone", data, shared, "exact", base=False)
    yield Ckptz("ckptz exact, alone, 2 threads", data, shared, "exact", base=False, threads=2)
