"""Files for the tests of inputs, made byte by byte: zip, torch, .safetensors and .npy."""

from __future__ import annotations

import io
import json
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from ckptz.errors import CkptzError
from ckptz.inputs import open_input

DATA = Path(__file__).parent.parent / "data" / "inputs"
STORAGES = {"0": struct.pack("<4f", 1, 2, 3, 4)}

# Pieces of pickles in protocol 2.
OD = b"ccollections\nOrderedDict\n"
ENCODE = b"c_codecs\nencode\n"


def text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def integer(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def integers(*values: int) -> bytes:
    return b"(" + b"".join(map(integer, values)) + b"t"


def storage(key: str = "0", count: int = 4, kind: str = "FloatStorage") -> bytes:
    parts = text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text(key) + text("cpu")
    return b"(" + parts + integer(count) + b"tQ"


def tensor(
    store: bytes = storage(),
    offset: int = 0,
    size: bytes = b"K\x04\x85",
    stride: bytes = b"K\x01\x85",
) -> bytes:
    function = b"ctorch._utils\n_rebuild_tensor_v2\n("
    return function + store + integer(offset) + size + stride + b"\x89" + OD + b")R" + b"tR"


# An array that has no truth value, with a scalar made and dropped before it.
ARRAY = (
    b"cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n" + text("f4") + b"\x85RC\x04abcd\x86R0"
    b"cnumpy.core.numeric\n_frombuffer\n(C\x08abcdefghcnumpy\ndtype\n"
    + text("f4")
    + b"\x85R"
    + integers(2)
    + text("C")
    + b"tR"
)


def torch_zip(
    pickle: bytes,
    storages: dict[str, bytes] = STORAGES,
    order: str = "little",
    method: int = 0,
    extra: dict[str, bytes] | None = None,
) -> bytes:
    members = {"data.pkl": pickle, "byteorder": order.encode()}
    members |= {f"data/{key}": data for key, data in storages.items()}
    members |= extra or {}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(f"archive/{name}", data)
    return out.getvalue()


def torch_legacy(pickle: bytes, keys: bytes | None = None, data: bytes | None = None) -> bytes:
    used = storage()[:-2] in pickle or keys is not None or data is not None
    if keys is None:
        keys = b"\x80\x02]" + (text("0") + b"a." if used else b".")
    magic = b"\x80\x02" + integer(0x1950A86A20F9469CFC6C) + b"."
    system = b"\x80\x02}" + text("little_endian") + b"\x88s."
    if data is None:
        data = struct.pack("<Q", 4) + STORAGES["0"] if used else b""
    return magic + b"\x80\x02M\xe9\x03." + system + pickle + keys + data


def safetensors(header: object, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def state_of(path: Path, data: bytes) -> Any:
    path.write_bytes(data)
    with open_input(path) as file:
        return file.state()


def survives(path: Path, data: bytes, seconds: float = 5.0) -> Exception | None:
    """Read a file that may be damaged: a good state, or an error that a user can act on."""
    started = time.monotonic()
    found: CkptzError | None = None
    try:
        state_of(path, data)
    except CkptzError as error:
        found = error
    assert time.monotonic() - started < seconds
    if found is not None:
        assert str(path) in str(found)
        assert "\n" not in str(found)
        assert len(str(found)) < 600
    return found
