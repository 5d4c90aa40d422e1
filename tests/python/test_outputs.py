"""Writing .safetensors and .npz: what comes back, lazily, and that a file is whole or absent."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ckptz.errors import UnsupportedTypeError
from ckptz.inputs import open_input
from ckptz.inputs.dtypes import ML_DTYPES, SAFETENSORS
from ckptz.outputs import write_npz, write_safetensors

ARRAYS: dict[str, Any] = {
    "f4": np.arange(6, dtype=np.float32).reshape(2, 3),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": np.arange(24.0).reshape(4, 6)[::2, ::-1],
    "broadcast": np.broadcast_to(np.float16(2), (3, 2)),
    "big-endian": np.arange(5, dtype=">i8"),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 4), np.float16),
    "bool": np.array([True, False, True]),
    "": np.zeros(1, np.int16),
    "../\u00e9\n": np.ones((1, 1), np.uint64),
    "bf16": np.arange(3).astype(ml_dtypes.bfloat16),
    "fp8": np.arange(3).astype(ml_dtypes.float8_e4m3fn),
    "fp4": np.arange(4).astype(ml_dtypes.float4_e2m1fn).reshape(2, 2),
    "c8": np.array([1 + 2j], np.complex64),
}

Write = Callable[[Path, Mapping[str, Any]], None]


def write_st(path: Path, arrays: Mapping[str, Any]) -> None:
    write_safetensors(path, arrays, {})


BOTH = pytest.mark.parametrize("write", [write_st, write_npz])


def read(path: Path) -> Any:
    with open_input(path) as file:
        return file.state()


def assert_same(found: Any, wanted: Any) -> None:
    assert found.dtype.newbyteorder("=") == wanted.dtype.newbyteorder("=")
    assert found.shape == wanted.shape
    assert found.astype(wanted.dtype).tobytes() == wanted.tobytes()


@BOTH
def test_what_comes_back(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "a", ARRAYS)
    state = read(tmp_path / "a")
    assert state.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert_same(state[name], array)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@BOTH
def test_no_arrays(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "a.npz", {})
    assert read(tmp_path / "a.npz") == {}


def test_each_dtype_of_safetensors(tmp_path: Path) -> None:
    arrays = {
        code: np.arange(4).astype(dtype)
        for code, dtype in SAFETENSORS.items()
        if not code.startswith("F6_")
    }
    write_safetensors(tmp_path / "a", arrays, {"k": "v \u00e9"})
    state = read(tmp_path / "a")
    assert list(state) == sorted(arrays, key=list(SAFETENSORS).index, reverse=True)
    for code, array in arrays.items():
        assert_same(state[code], array)
    with open_input(tmp_path / "a") as file:
        assert file.metadata == {"k": "v \u00e9"}


def test_layout_of_safetensors(tmp_path: Path) -> None:
    names = {"b": np.zeros(1, "u1"), "a": np.ones(1, "u1"), "w": np.zeros(1, "f8")}
    write_safetensors(tmp_path / "a", names, {})
    data = (tmp_path / "a").read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert (8 + length) % 8 == 0
    assert data[8 : 8 + length].rstrip(b" ") == (
        b'{"w":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},'
        b'"a":{"dtype":"U8","shape":[1],"data_offsets":[8,9]},'
        b'"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}}'
    )
    assert data[8 + length :] == bytes(8) + b"\1\0"


def test_same_bytes_as_the_reference(tmp_path: Path) -> None:
    reference = pytest.importorskip("safetensors.numpy", reason="needs safetensors: pip install")
    kinds = ("f8", "u1", "i4", "f2", "i8", "u2", "?", "c8")
    arrays = {f"{i % 3}.{kind}": np.arange(i).astype(kind) for i, kind in enumerate(kinds)}
    for metadata in ({}, {"format": "np"}):
        reference.save_file(arrays, tmp_path / "theirs", metadata or None)
        write_safetensors(tmp_path / "ours", arrays, metadata)
        assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    plain = {key: array for key, array in ARRAYS.items() if array.dtype not in ML_DTYPES.values()}
    write_st(tmp_path / "ours", plain)
    found = reference.load_file(tmp_path / "ours")
    for name, array in plain.items():
        assert_same(found[name], array)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(1, np.complex128),
        np.array(["a"]),
        np.zeros(1, "M8[s]"),
        np.array([None]),
        np.zeros(1, np.longdouble),
        np.zeros(2, ml_dtypes.float6_e2m3fn),
        np.zeros(2, ml_dtypes.int4),
        np.zeros(3, ml_dtypes.float4_e2m1fn),
    ],
    ids=lambda array: str(array.dtype),
)
def test_what_safetensors_cannot_hold(tmp_path: Path, array: Any) -> None:
    with pytest.raises(UnsupportedTypeError, match=r"'x'.*write \.npz instead"):
        write_safetensors(tmp_path / "a", {"x": array}, {})
    assert not list(tmp_path.iterdir())


def test_keys_and_metadata_that_safetensors_cannot_hold(tmp_path: Path) -> None:
    for key in ("__metadata__", "\ud800"):
        with pytest.raises(UnsupportedTypeError, match="cannot have this key"):
            write_safetensors(tmp_path / "a", {key: np.zeros(1)}, {})
    with pytest.raises(UnsupportedTypeError, match="text for text"):
        write_safetensors(tmp_path / "a", {}, {"a": "\udfff"})


def test_numpy_reads_the_npz(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", ARRAYS)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert archive["columns first"].flags.f_contiguous
        for name in ("f4", "columns first", "strided", "scalar", "empty", "", "../\u00e9\n"):
            assert_same(archive[name], ARRAYS[name])
        assert archive["bf16@bfloat16"].view(ml_dtypes.bfloat16).tolist() == [0, 1, 2]
    assert all(array.flags.aligned for array in read(tmp_path / "a.npz").values())


def test_each_other_dtype_in_npz(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {name: np.zeros(3, dtype) for name, dtype in ML_DTYPES.items()}
    arrays |= {"text": np.array(["ab"]), "times": np.zeros(2, "M8[us]"), "raw": np.zeros(2, "V3")}
    write_npz(tmp_path / "a.npz", arrays)
    state = read(tmp_path / "a.npz")
    for name, array in arrays.items():
        assert (state[name].dtype, state[name].tobytes()) == (array.dtype, array.tobytes())


@pytest.mark.parametrize(
    ("arrays", "what"),
    [
        ({"x": np.array([None])}, "cannot safely hold dtype object"),
        ({"x": np.zeros(1, [("a", "i4")])}, "cannot safely hold dtype"),
        ({"x\0": np.zeros(1)}, "cannot have this key"),
        ({"\ud800": np.zeros(1)}, "cannot have this key"),
        ({"x" * 70_000: np.zeros(1)}, "cannot have this key"),
        ({"x@bfloat16": np.zeros(1, np.uint16)}, "rename it"),
        (
            {"x": np.zeros(1, ml_dtypes.bfloat16), "x@bfloat16": np.zeros(1)},
            "would both be member",
        ),
    ],
)
def test_what_npz_cannot_hold(tmp_path: Path, arrays: Any, what: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=what):
        write_npz(tmp_path / "a", arrays)
    assert not list(tmp_path.iterdir())


class Lazy(Mapping[str, Any]):
    """Makes each array anew when asked, and knows how many are alive."""

    def __init__(self, count: int, fails: bool = False) -> None:
        self.names = [f"a{i}" for i in range(count)]
        self.fails = fails
        self.asked = 0
        self.alive = self.most = 0

    def __getitem__(self, name: str) -> Any:
        self.asked += 1
        if self.fails and self.asked > len(self.names) + 1:
            raise KeyError(name)
        array = np.full(10, self.names.index(name), np.float32)
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(array, self.gone)
        return array

    def gone(self) -> None:
        self.alive -= 1

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@BOTH
def test_lazy_values_are_held_one_at_a_time(tmp_path: Path, write: Write) -> None:
    lazy = Lazy(20)
    write(tmp_path / "a", lazy)
    assert lazy.asked == 40
    assert lazy.most == 1
    assert read(tmp_path / "a")["a7"].tolist() == [7.0] * 10


class View:
    """A tensor that is read only when NumPy asks for it, as those of a snapshot."""

    shape = (2,)
    dtype = np.dtype("f4")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([1, 2], "f4")


@BOTH
def test_values_may_be_views_of_their_own(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "a", {"x": View()})
    assert read(tmp_path / "a")["x"].tolist() == [1.0, 2.0]


@BOTH
def test_a_failure_leaves_the_old_file(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(KeyError):
        write(path, Lazy(5, fails=True))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(path, {"x": np.zeros(3)})
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@BOTH
def test_where_files_go(tmp_path: Path, write: Write) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to(target)
    write(link, {"x": np.zeros(1)})
    assert link.is_symlink()
    assert list(read(target)) == ["x"]
    with pytest.raises(OSError, match="not a regular file"):
        write(tmp_path, {"x": np.zeros(1)})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link to it").symlink_to("pipe")
    for name in ("pipe", "link to it"):
        with pytest.raises(OSError, match="not a regular file") as found:
            write(tmp_path / name, {"x": np.zeros(1)})
        assert found.value.filename == str(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "no folder" / "a", {"x": np.zeros(1)})


@BOTH
def test_large_arrays_that_are_not_contiguous(tmp_path: Path, write: Write) -> None:
    wide = np.arange(6_000_000, dtype=np.float32).reshape(2, 3, 1_000_000)
    arrays = {"wide": wide[::-1, :, ::-1], "thin": wide.reshape(-1, 1)[::-1], "t": wide[0].T}
    write(tmp_path / "a", arrays)
    state = read(tmp_path / "a")
    for name, array in arrays.items():
        assert_same(state[name], array)


@BOTH
def test_equal_states_give_equal_files(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "a", ARRAYS)
    write(tmp_path / "b", {name: array.copy() for name, array in ARRAYS.items()})
    assert (tmp_path / "a").stat().st_size == (tmp_path / "b").stat().st_size
    write(tmp_path / "c", ARRAYS)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "c").read_bytes()
