"""The compiled core of ckptz. Private: `ckptz.codec` is its only user."""

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

__version__: str

Bytes = NDArray[np.uint8]
# Number of a formula, and the records that it reads.
Predicted = tuple[int, list[int]]

class ChangedError(Exception): ...

class RecordError(Exception):
    """Damaged bytes: message, whether it is a checksum, layer, tensor, chunk, offset."""

    args: tuple[str, bool, int | None, int | None, int | None, int]

class ReadError(Exception):
    """A payload that the system does not read: the system's number of what is wrong, layer."""

    args: tuple[int, int]

class Spec:
    @staticmethod
    def exact(*, links: bool, predict: bool, chunk_log2: int) -> Spec: ...
    @staticmethod
    def lossy(
        *,
        levels: int | None,
        bits: int | None,
        non_negative_levels: int | None,
        domain: str,
        representative: str,
        refinement: int,
        base: str,
        coding: str,
        exact_fallback: bool,
        least_elements: int,
        links: bool,
        predict: bool,
        chunk_log2: int,
        max_error: float | None = None,
        max_rel_error: float | None = None,
    ) -> Spec: ...
    def may_pair(self, elements: int) -> bool: ...

class SnapshotEncoder:
    def __new__(
        cls,
        targets: list[Bytes],
        bases: list[Bytes | None],
        elements: list[int],
        specs: list[Spec],
        residual: bool,
        threads: int,
        first: int = 0,
        known: list[Predicted | None] = ...,
        search: bool = False,
        watched: bool = False,
    ) -> SnapshotEncoder: ...
    @property
    def predicts(self) -> bool: ...
    def fill(self, out: Bytes, crc: Crc) -> int: ...
    def finish(self) -> tuple[bytes, bool, bool, list[int]]: ...

class Window:
    @property
    def segments(self) -> list[tuple[int, int, int]]: ...
    @property
    def apart(self) -> list[bool]: ...

class Payload:
    def __new__(cls, descriptor: int, start: int) -> Payload: ...

class Chain:
    def __new__(
        cls,
        shapes: list[tuple[int, int]],
        files: list[list[tuple[bytes, list[int], list[int], int]]],
        path: list[tuple[int, int]],
        every_layer: bool,
    ) -> Chain: ...
    def payload_bytes(self) -> list[int]: ...
    def predicts(self, layer: int) -> bool: ...
    def has_pairs(self, layer: int) -> bool: ...
    def chunk_offset(self, layer: int, tensor: int, chunk: int) -> int | None: ...
    def windows(self, selections: list[tuple[int, int, int]], budget: int) -> list[Window]: ...
    def decode(
        self,
        window: Window,
        stored: list[Bytes | Payload],
        outputs: list[tuple[int, int, int, Bytes]],
        threads: int,
        check_each: bool,
    ) -> None: ...

class Merge:
    def __new__(
        cls,
        shapes: list[tuple[int, int]],
        files: list[list[tuple[bytes, list[int], list[int], int]]],
        chosen: list[tuple[int, int]],
        absent: list[list[int]],
    ) -> Merge: ...
    def pieces(self, first: int, count: int) -> list[tuple[int, int, int]]: ...

def useless_records(
    shapes: list[tuple[int, int]],
    snapshots: list[tuple[bytes, list[int], list[int], int]],
    parents: list[int | None],
    kept: list[bool],
) -> list[list[int]]: ...

class Description(TypedDict):
    kind: str
    base: str
    siblings: list[int]
    coding: str | None
    lossy: bool
    needs_base: bool
    unchanged_chunks: int
    error: float
    source: int | None
    representatives: list[float] | None
    code_lengths: list[int] | None
    header_bytes: int
    table_bytes: int
    payload_bytes: int

def describe(headers: bytes, shapes: list[tuple[int, int]]) -> list[Description]: ...
def predictions(headers: bytes, shapes: list[tuple[int, int]]) -> list[Predicted | None]: ...
def decode_record(
    header: bytes, element: int, payload: Bytes, content: Bytes, threads: int
) -> None: ...

class Crc:
    def __new__(cls) -> Crc: ...
    def update(self, bytes: bytes | Bytes) -> None: ...
    @property
    def value(self) -> int: ...

def copy_changed(sources: list[Bytes], rooms: list[Bytes], threads: int) -> int: ...
def content_sums(
    targets: list[Bytes], elements: list[int], specs: list[Spec], threads: int
) -> list[int]: ...
def digest(parts: list[bytes]) -> bytes: ...
def content_sum(bytes: bytes) -> int: ...
def compress(bytes: bytes) -> bytes: ...
def decompress(bytes: bytes, length: int) -> bytes: ...
