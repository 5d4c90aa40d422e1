"""Make seeds for the fuzz targets of the golden records, in the forms that fuzz/targets read.

    python fuzz/seeds.py

Fills fuzz/corpus; needs nothing but Python.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "tests" / "data" / "golden"
FLOATS = {"float16": (0, 2), "bfloat16": (1, 2), "float32": (2, 4), "float64": (3, 8)}
OPAQUE = {"uint8": (4, 1), "uint16": (5, 2), "int64": (11, 8)}
LONGEST = 0xFFFF
SHORT = 600


def records() -> Iterator[tuple[str, int, int, bytes, bytes, bytes]]:
    """Yield name, element type, elements, header, payload and base of what is short enough."""
    for path in sorted(GOLDEN.rglob("arrays/*.parts")):
        data = path.read_bytes()
        lengths = struct.unpack_from("<4I", data)
        at, parts = 16, []
        for length in lengths:
            parts.append(data[at : at + length])
            at += length
        header, payload, base, content = parts
        element, size = (FLOATS | OPAQUE)[path.stem.rpartition(".")[2]]
        if max(len(header), len(payload), len(content) // size) <= LONGEST:
            yield path.stem, element, len(content) // size, header, payload, base


def piece(raw: bytes) -> bytes:
    """Return bytes after their length."""
    return struct.pack("<H", len(raw)) + raw


def write(target: str, name: str, seed: bytes) -> None:
    """Write a seed of a target."""
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(seed)


def main() -> None:
    """Write all seeds."""
    for name, element, elements, header, payload, base in records():
        shape = struct.pack("<BH", element, elements)
        write("header", name, shape + b"\0" + header)
        write("record", name, shape + piece(header) + piece(payload) + base)
        layer = b"\x01" + piece(header) + piece(payload)
        everything = struct.pack("<HHB", 0, LONGEST, 1)
        write("chain", name, b"\0" + shape + b"\0" + layer + everything)
        if not base:
            write("chain", f"{name}.twice", b"\0" + shape + b"\x01" + 2 * layer + everything)
        # Chunks of 64, 3 levels, no refinement, the cheapest coding; not repeated, steps small.
        dials = bytes([0, 1, 0, 4, 2, 0, 0, 0, 0, 0, 0, element % 4, 0, 1])
        write("round_trip", name, dials + payload[:SHORT] + base[:SHORT])
        # Three tensors of 64: two of float32, lossy; one of bfloat16, exact, a rounding.
        three = bytes([2, 64, 0, 0, 1, 2, 2, 1, 2, 2, 0, 2, 2, 0, 0, 0])
        state = 2 * piece(payload[:SHORT]) + piece(b"")
        write("snapshots", name, three + 2 * state)
    write("group", "two", bytes([1, 100, 0, 1, 1, 13]) + bytes(range(13)))


if __name__ == "__main__":
    main()
