"""Reading .npy and .npz: dtypes, layouts, views, compression, and what is refused."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ckptz.errors import FormatError, UnsupportedTypeError
from inputs_files import npy, state_of, survives

ARRAYS = {
    "f4": np.arange(6, dtype=np.float32).reshape(2, 3),
    "big-endian": np.arange(5, dtype=">i8"),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 4), np.float16),
    "text": np.array(["ab", "c"]),
    "bytes": np.array([b"abc", b"d"]),
    "times": np.array(["2020-01-01", "NaT"], "M8[us]"),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "long double": np.arange(3, dtype=np.longdouble),
    "without a name": np.zeros(2, "V3"),
}


def same(found: Any, wanted: Any) -> bool:
    return (found.dtype, found.shape, found.tobytes()) == (
        wanted.dtype,
        wanted.shape,
        wanted.tobytes(),
    )


@pytest.mark.parametrize("name", ARRAYS)
def test_npy_is_a_view(tmp_path: Path, name: str) -> None:
    array = state_of(tmp_path / "a", npy(ARRAYS[name]))
    assert same(array, ARRAYS[name])
    assert array.size == 0 or not array.flags.owndata
    assert array.flags.f_contiguous == ARRAYS[name].flags.f_contiguous


@pytest.mark.parametrize("compressed", [False, True])
def test_npz(tmp_path: Path, compressed: bool) -> None:
    out = io.BytesIO()
    save: Any = np.savez_compressed if compressed else np.savez
    save(out, **ARRAYS)
    state = state_of(tmp_path / "a", out.getvalue())
    assert list(state) == list(ARRAYS)
    assert all(same(state[name], ARRAYS[name]) for name in ARRAYS)


def test_compressed_arrays_of_many_pieces(tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 9, (3_000_001,), np.uint8)
    out = io.BytesIO()
    np.savez_compressed(out, a=array, b=np.zeros(5_000_000))
    state = state_of(tmp_path / "a", out.getvalue())
    assert same(state["a"], array)
    assert not state["b"].any()


def test_keys_are_data(tmp_path: Path) -> None:
    keys = ["", "../x", "/a", "a.npy", "\u00e9", "__metadata__", "a\\b"]
    state = state_of(tmp_path / "a", zipped({f"{key}.npy": npy(np.zeros(1)) for key in keys}))
    assert list(state) == keys


def test_dtypes_that_npy_cannot_name_come_back(tmp_path: Path) -> None:
    bits = npy(np.array([0x3F80], np.uint16))
    state = state_of(tmp_path / "a", zipped({"x@bfloat16.npy": bits, "y@int9.npy": bits}))
    assert state["x"].dtype == ml_dtypes.bfloat16
    assert state["x"].tolist() == [1.0]
    assert state["y@int9"].dtype == np.uint16


def test_empty_archive(tmp_path: Path) -> None:
    assert state_of(tmp_path / "a.npz", zipped({})) == {}
    assert isinstance(survives(tmp_path / "a.pt", zipped({})), FormatError)


@pytest.mark.parametrize("array", [np.array([None, {}]), np.zeros(2, [("a", "i4"), ("b", "f4")])])
def test_objects_and_fields_are_refused(tmp_path: Path, array: Any) -> None:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=True)
    for data in (out.getvalue(), zipped({"x.npy": out.getvalue()})):
        error = survives(tmp_path / "a", data)
        assert isinstance(error, UnsupportedTypeError)
        assert "not stored" in str(error)


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def header(text: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\2\0" + len(text).to_bytes(4, "little") + text.encode("latin-1") + data


BAD_HEADERS = [
    "",
    "{}",
    "{'descr': '<f4', 'fortran_order': False}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
    "{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}",
    "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2.5,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os').system('x'),)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (%s)}" % ("9," * 20_000),
    "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,)}" % ("9" * 60_000),
    "{'descr': '<f5', 'fortran_order': False, 'shape': ()}",
    "{'descr': '<U999999999', 'fortran_order': False, 'shape': (0,)}",
    "{'descr': '<M8[parsec]', 'fortran_order': False, 'shape': (1,)}",
    "{'descr': '<f4,<f4', 'fortran_order': False, 'shape': (1,)}",
    "(" * 60_000,
    "-" * 60_000 + "1",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
    "x" * 100_000,
]


@pytest.mark.parametrize("text", BAD_HEADERS, ids=lambda text: text[:30])
def test_each_bad_header_is_refused(tmp_path: Path, text: str) -> None:
    for data in (header(text, b"12345678"), zipped({"x.npy": header(text, b"12345678")})):
        error = survives(tmp_path / "a", data)
        assert isinstance(error, FormatError)
        assert "offset" in str(error)


def test_headers_of_python_2(tmp_path: Path) -> None:
    text = "{'shape': (2L, 1L), 'fortran_order': False, 'descr': '<i4', }            \n"
    assert state_of(tmp_path / "a", header(text, b"12345678")).shape == (2, 1)


def test_a_bomb_is_bounded_by_the_shape(tmp_path: Path) -> None:
    bomb = npy(np.zeros(2, np.uint8)) + bytes(200_000_000)
    error = survives(tmp_path / "a", zipped({"x.npy": bomb}, zipfile.ZIP_DEFLATED))
    assert "its header says" in str(error)


def test_sizes_that_deflate_cannot_reach(tmp_path: Path) -> None:
    data = bytearray(zipped({"x.npy": npy(np.zeros(1000))}, zipfile.ZIP_DEFLATED))
    entry = data.index(b"PK\1\2")
    data[entry + 24 : entry + 28] = (2**31).to_bytes(4, "little")
    assert "cannot be true" in str(survives(tmp_path / "a", bytes(data)))


def test_other_members_and_methods_are_refused(tmp_path: Path) -> None:
    array = npy(np.zeros(100))
    assert "no array" in str(survives(tmp_path / "a", zipped({"x.npy": array, "y": b""})))
    error = survives(tmp_path / "a", zipped({"x.npy": array}, zipfile.ZIP_BZIP2))
    assert isinstance(error, FormatError)
    encrypted = bytearray(zipped({"x.npy": array}))
    encrypted[encrypted.index(b"PK\1\2") + 8] |= 1
    assert "encrypted" in str(survives(tmp_path / "a", bytes(encrypted)))


def test_members_that_overlap_are_refused(tmp_path: Path) -> None:
    data = bytearray(zipped({"x.npy": npy(np.zeros(4)), "y.npy": npy(np.zeros(4))}))
    longer = data.index(b"PK\3\4", 4).to_bytes(4, "little")
    entry = data.index(b"PK\1\2")
    data[entry + 20 : entry + 28] = longer * 2
    assert "overlaps" in str(survives(tmp_path / "a", bytes(data)))


def test_a_wrong_crc_is_damage(tmp_path: Path) -> None:
    data = bytearray(zipped({"x.npy": npy(np.zeros(4))}))
    at = data.index(b"PK\1\2") - 1
    data[at] ^= 1
    assert "CRC" in str(survives(tmp_path / "a", bytes(data)))


def test_garbage_around_the_archive_is_refused(tmp_path: Path) -> None:
    data = zipped({"x.npy": npy(np.zeros(4))})
    assert survives(tmp_path / "a", data + b"x") is not None
    assert survives(tmp_path / "a", b"PK\3\4" + data) is not None
