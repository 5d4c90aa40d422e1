"""Golden files of format version 1 decode for ever, here and in the reader that is plain Python."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
from ckptz import codec
from ckptz.dtypes import numpy_dtype

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
FRAMES = sorted(GOLDEN.rglob("arrays/*.frame"))

sys.path.insert(0, str(ROOT / "tools"))
import read_ckptz  # noqa: E402


def parts(frame: Path) -> tuple[bytes, bytes]:
    """Base and expected content of a golden record."""
    data = frame.with_suffix(".parts").read_bytes()
    lengths = [int.from_bytes(data[4 * k : 4 * k + 4], "little") for k in range(4)]
    start = 16 + lengths[0] + lengths[1]
    return data[start : start + lengths[2]], data[start + lengths[2] :]


def base_of(frame: Path, content: bytes, shape: Any) -> np.ndarray[Any, Any] | None:
    """The base as an array of the record's dtype."""
    if not content:
        return None
    dtype = numpy_dtype(frame.suffixes[-2][1:])
    values: np.ndarray[Any, Any] = np.frombuffer(content, dtype).reshape(shape).copy()
    return values


def test_there_are_golden_frames() -> None:
    assert len(FRAMES) >= 84


@pytest.mark.parametrize("frame", FRAMES, ids=lambda path: path.stem)
def test_frames_decode(frame: Path) -> None:
    content, expected = parts(frame)
    base = base_of(frame, content, -1)
    assert codec.decode(frame.read_bytes(), base).tobytes() == expected


@pytest.mark.parametrize("frame", FRAMES, ids=lambda path: path.stem)
def test_the_plain_reader_agrees_on_frames(frame: Path) -> None:
    content, expected = parts(frame)
    base = base_of(frame, content, -1)
    if base is not None and base.dtype.name == "bfloat16":
        base = base.view(np.uint16)
    read = read_ckptz.read_array(frame.read_bytes(), base)
    assert np.asarray(read).tobytes() == expected


def check(restored: dict[str, Any], told: Path) -> None:
    """Compare with what make.py wrote down."""
    expected = json.loads(told.read_text())
    assert set(expected) <= set(restored)
    for path, value in expected.items():
        if isinstance(value, list):
            array = np.asarray(restored[path])
            assert list(array.shape) == value[1], path
            assert array.tobytes().hex() == value[2], path
        else:
            assert repr(restored[path]) == value, path


STORES = {"store": [0, 10, 20, 30, 40, 60], "objects": [0, 10, 25]}


@pytest.mark.parametrize("name", STORES)
def test_the_store_restores(name: str) -> None:
    manager = ckptz.CheckpointManager(GOLDEN / name, readonly=True)
    assert manager.all_steps() == STORES[name]
    for step in STORES[name]:
        flat = manager.restore(step, keys="*", as_numpy=True, residual=False)
        check(flat, GOLDEN / name / f"expected-{step}.json")
    check(manager.restore(keys="*", as_numpy=True), GOLDEN / name / "expected-exact.json")
    assert manager.verify().ok


@pytest.mark.parametrize("name", STORES)
def test_the_plain_reader_agrees_on_the_store(name: str) -> None:
    store = read_ckptz.Store(str(GOLDEN / name))
    assert store.steps() == STORES[name]
    for step in STORES[name]:
        check(store.restore(step, residual=False), GOLDEN / name / f"expected-{step}.json")
    check(store.restore(), GOLDEN / name / "expected-exact.json")


MERGED = GOLDEN / "merged"


def test_the_merged_store_restores() -> None:
    manager = ckptz.CheckpointManager(MERGED, readonly=True)
    assert manager.all_steps() == [0, 2, 4, 5, 6, 9]
    assert manager.pinned_steps() == [2]
    for step in manager:
        check(manager.restore(step, keys="*", as_numpy=True), MERGED / f"expected-{step}.json")
    assert manager.verify().ok
    assert [manager.stats(step).lossy_restores for step in manager] == [0, 0, 0, 0, 0, 1]
    assert [manager.stats(step).tensors["seldom"].age for step in manager] == [0, 2, 1, 2, 0, 2]
    assert manager.stats(4).metrics == {"loss": 0.2}
    assert {entry.sharing for entry in manager._store.entries.values()} == {1, 3}
    assert any(entry.missing for entry in manager._store.entries.values())


def test_the_plain_reader_agrees_on_the_merged_store() -> None:
    store = read_ckptz.Store(str(MERGED))
    assert store.steps() == [0, 2, 4, 5, 6, 9]
    for step in store.steps():
        check(store.restore(step), MERGED / f"expected-{step}.json")


@pytest.mark.parametrize("mode", ["exact", "lossy"])
def test_the_predicted_stores_restore(mode: str) -> None:
    folder = GOLDEN / "predicted" / mode
    manager, plain = ckptz.CheckpointManager(folder, readonly=True), read_ckptz.Store(str(folder))
    assert manager.all_steps() == plain.steps() == [0, 1, 2, 3]
    for step in range(4):
        told = folder / f"expected-{step}.json"
        check(manager.restore(step, keys="*", as_numpy=True), told)
        check(plain.restore(step), told)
    assert manager.verify().ok
    assert "predicted" in {t.base for t in manager.stats(3).tensors.values()}


def test_the_bounded_store_restores() -> None:
    folder = GOLDEN / "bounded"
    manager, plain = ckptz.CheckpointManager(folder, readonly=True), read_ckptz.Store(str(folder))
    assert manager.all_steps() == plain.steps() == [0, 1, 2]
    for step in range(3):
        told = folder / f"expected-{step}.json"
        check(manager.restore(step, keys="*", as_numpy=True), told)
        check(plain.restore(step), told)
    assert manager.verify().ok
    assert manager.policy.rules[0].max_error == 1e-4
    records = manager.stats(2).tensors.values()
    assert {t.kind for t in records} >= {"value", "ordered", "ordered non-negative"}


def test_the_paired_store_restores() -> None:
    folder = GOLDEN / "paired" / "store"
    manager, plain = ckptz.CheckpointManager(folder, readonly=True), read_ckptz.Store(str(folder))
    assert manager.all_steps() == plain.steps() == [0, 1, 2, 3]
    for step in range(4):
        told = folder / f"expected-{step}.json"
        check(manager.restore(step, keys="*", as_numpy=True, residual=False), told)
        check(plain.restore(step, residual=False), told)
    check(manager.restore(keys="*", as_numpy=True), folder / "expected-exact.json")
    assert manager.verify().ok
    assert {t.coding for t in manager.stats(3).tensors.values() if t.lossy} == {"pairs"}
    # Revision and features: a full snapshot, two merged, a delta, a residual.
    heads = sorted((data[10], data[12]) for data in map(Path.read_bytes, folder.glob("*.ckptz")))
    assert heads == [(0, 0), (0, 0), (2, 16), (2, 17)]


def test_the_single_file_loads() -> None:
    check(ckptz.load_file(GOLDEN / "one.ckptz", keys="*", as_numpy=True), GOLDEN / "one.json")
    check(read_ckptz.read_file(str(GOLDEN / "one.ckptz")), GOLDEN / "one.json")


def test_the_plain_reader_finds_every_flipped_byte(tmp_path: Path) -> None:
    data = (GOLDEN / "one.ckptz").read_bytes()
    good = read_ckptz.read_file(str(GOLDEN / "one.ckptz"))
    path = tmp_path / "flipped.ckptz"
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        try:
            read = read_ckptz.read_file(str(path))
        except read_ckptz.FormatError:
            continue
        assert repr(read) == repr(good), at


def examples() -> list[bytes]:
    """The files whose hex the format page shows."""
    page = (ROOT / "docs" / "format.md").read_text()
    blocks = page.split("## 15. Worked examples")[1].split("## 16.")[0].split("```")[1::2]
    files = []
    for block in blocks:
        data = b""
        for line in block.strip("\n").splitlines():
            numbers = re.match(r" *(\d+)  ((?:[0-9a-f]{2} ?)+)(?: |$)", line)
            assert numbers, line
            assert int(numbers[1]) == len(data), line
            data += bytes.fromhex(numbers[2])
        files.append(data)
    return files


def test_the_examples_of_the_format_page(tmp_path: Path) -> None:
    file, frame = examples()
    path = tmp_path / "tiny.ckptz"
    path.write_bytes(file)
    for state in (ckptz.load_file(path), read_ckptz.read_file(str(path))):
        assert state["lr"] == 0.5
        assert state["w"].tolist() == [1.5, -2.0, 0.25]
    base = np.array([0.58, 1.5, 0.19, 1.3, 1.16, 1.28, 0.89, 1.19, 1.11, 0.94], np.float32)
    restored = codec.decode(frame, base)
    expected = [1.37, 1.02, 0.19, 1.3, 1.16, 1.72, 0.89, 1.63, 1.9, 0.94]
    assert [round(float(x), 2) for x in restored] == expected
    assert codec.content_sum(b"") == 0
    assert codec.content_sum(bytes(range(200))) == 0xB1E54DD8210C25E7


def test_the_plain_reader_writes_key_paths_as_ckptz_does(tmp_path: Path) -> None:
    keys = ["007", "7", "-7", "-0", "0", "-07", "7\n", "٣", "~", "a/b", "", 7, -7]
    state = {key: np.full(2, number) for number, key in enumerate(keys)}
    ckptz.save_file(state, tmp_path / "one.ckptz")
    found = read_ckptz.read_file(str(tmp_path / "one.ckptz"))
    with ckptz.safe_open(tmp_path / "one.ckptz") as snapshot:
        assert list(found) == list(snapshot)
