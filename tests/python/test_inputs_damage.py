"""Every byte of small files flipped, every truncation: a typed error or a good read, at once."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ckptz.errors import FormatError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs_files import (
    DATA,
    OD,
    integers,
    npy,
    safetensors,
    storage,
    survives,
    tensor,
    text,
    torch_legacy,
    torch_zip,
)

ARRAY = (
    b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\x01b\x87R(K\x01K\x01\x85"
    b"cnumpy\ndtype\n" + text("f4") + b"\x89\x88\x87R(K\x03" + text("<") + b"NNNJ\xff\xff\xff\xff"
    b"J\xff\xff\xff\xffK\0tb\x89C\x04abcdtb"
)
V3 = (
    b"ctorch._utils\n_rebuild_tensor_v3\n(" + storage(count=16, kind="UntypedStorage")
    + b"K\x02" + integers(2, 2) + integers(2, 1) + b"\x89" + OD + b")Rctorch\nuint16\ntR"
)  # fmt: skip
PICKLE = (
    b"\x80\x02}q\0(" + text("tensor") + tensor(size=integers(2, 2), stride=integers(1, 2))
    + text("array") + ARRAY + text("dict") + OD + b")Rq\1" + text("a") + b"G?\xf0\0\0\0\0\0\0s}"
    + text("_metadata") + b"}sb" + text("list") + b"]q\2(NI01\n\x88L12L\n\x8a\x02\xff\x01eu."
)  # fmt: skip


def npz(save: Callable[..., None]) -> bytes:
    out = io.BytesIO()
    save(out, a=np.arange(40, dtype=np.int16), b=np.zeros((2, 2)))
    return out.getvalue()


def header() -> bytes:
    fields = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
        "b": {"dtype": "BF16", "shape": [], "data_offsets": [8, 10]},
    }
    return safetensors(fields, b"0123456789")


FILES = {
    "a.safetensors": header(),
    "a.npy": npy(np.arange(6, dtype=">f4").reshape(2, 3)),
    "stored.npz": npz(np.savez),
    "deflated.npz": npz(np.savez_compressed),
    "zip.pt": torch_zip(PICKLE),
    "legacy.pt": torch_legacy(PICKLE),
    "v3.pt": torch_legacy(
        b"\x80\x02" + V3 + b".", keys=b"\x80\x02]" + text("0") + b"a.",
        data=struct.pack("<Q", 16) + bytes(16),
    ),
}  # fmt: skip


def flips(data: bytes) -> Iterator[bytes]:
    for at in range(len(data)):
        for mask in (0x01, 0xFF):
            yield data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


@pytest.mark.parametrize("name", FILES)
def test_each_flipped_byte(tmp_path: Path, name: str) -> None:
    assert survives(tmp_path / name, FILES[name]) is None
    for data in flips(FILES[name]):
        survives(tmp_path / name, data)


@pytest.mark.parametrize("name", FILES)
def test_each_truncation_is_refused(tmp_path: Path, name: str) -> None:
    for length in range(len(FILES[name])):
        error = survives(tmp_path / name, FILES[name][:length])
        assert isinstance(error, FormatError), length


def test_each_flipped_byte_of_a_pickle_whose_crc_is_right(tmp_path: Path) -> None:
    for pickle in flips(PICKLE):
        survives(tmp_path / "a.pt", torch_zip(pickle))


@pytest.mark.parametrize("name", ["training", "training_legacy", "kinds", "kinds_legacy"])
def test_files_of_torch_flipped_here_and_there(tmp_path: Path, name: str) -> None:
    data = (DATA / f"{name}.pt").read_bytes()
    for at in range(0, len(data), 17):
        survives(tmp_path / "a", data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
    for length in range(0, len(data), 61):
        assert survives(tmp_path / "a", data[:length]) is not None


def test_damaged_data_of_an_archive_is_found(tmp_path: Path) -> None:
    data = bytearray(FILES["zip.pt"])
    data[data.index(struct.pack("<4f", 1, 2, 3, 4)) + 5] ^= 4
    assert "CRC" in str(survives(tmp_path / "a", bytes(data)))


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.sampled_from(sorted(FILES)), edits=st.data())
def test_several_edits(tmp_path: Path, name: str, edits: Any) -> None:
    data = bytearray(FILES[name])
    for _ in range(edits.draw(st.integers(1, 4))):
        at = edits.draw(st.integers(0, len(data) - 1))
        length = edits.draw(st.integers(0, 9))
        data[at : at + length] = edits.draw(st.binary(max_size=9))
    survives(tmp_path / name, bytes(data))
