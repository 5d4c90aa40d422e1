"""Lazy tensors: any index gives what NumPy gives, and only the chunks it needs are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from ckptz.storage import Reader
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

CHUNK = 65_536

STATE: dict[str, Any] = {
    "matrix": stores.weights(0, (6, 5, 4)),
    "vector": np.arange(11),
    "half": stores.weights(1, (7, 3)).astype("f2"),
    "fortran": np.asfortranarray(stores.weights(2, (6, 5))),
    "strided": stores.weights(3, (9, 8))[::-2, ::3],
    "swapped": stores.weights(4, (5, 2)).astype(">f8"),
    "scalar": np.array(3.5),
    "empty": np.zeros((4, 0, 2), "i4"),
    "none": np.zeros((0, 3), "i4"),
    "text": np.array(["a", "bcd", ""]),
    "plain": [1, "two"],
}


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> ckptz.Snapshot:
    path = tmp_path_factory.mktemp("store")
    manager = ckptz.CheckpointManager(path)
    manager.save(0, STATE)
    near = {
        name: array + array.dtype.type(0.01) if array.dtype.kind == "f" else array
        for name, array in STATE.items()
        if isinstance(array, np.ndarray)
    }
    manager.save(1, near | {"plain": [1, "two"]})
    manager.save(2, STATE)
    return manager.open(2)


def test_a_snapshot_is_a_mapping(snapshot: ckptz.Snapshot) -> None:
    assert list(snapshot) == [name for name in STATE if name != "plain"]
    assert len(snapshot) == len(STATE) - 1
    assert "matrix" in snapshot
    assert "plain" not in snapshot
    assert not snapshot.__contains__(3)
    assert snapshot.plain == {"plain/0": 1, "plain/1": "two"}
    assert snapshot.step == 2
    assert repr(snapshot) == "<Snapshot of step 2: 10 tensors>"
    with pytest.raises(ckptz.MissingKeyError) as found:
        snapshot["other"]
    assert str(found.value) == "step 2 has no tensor 'other'"
    assert isinstance(found.value, ckptz.MissingSnapshotError)
    assert isinstance(found.value, KeyError)
    assert snapshot.get("other") is None
    view = snapshot.get("matrix")
    assert view is not None
    assert view.path == "matrix"
    with pytest.raises(KeyError, match="other"):
        dict(snapshot)["other"]


def test_the_newest_as_it_will_be_once_it_is_history(tmp_path: Path) -> None:
    manager = ckptz.CheckpointManager(tmp_path)
    for step, tree in enumerate(stores.training(3)):
        manager.save(step, tree)
    with manager.open(residual=False) as lossy, manager.open() as exact:
        same(lossy["model/weight"].numpy(), manager.restore(residual=False)["model"]["weight"])
        same(exact["model/weight"].numpy(), manager.restore()["model"]["weight"])
        assert lossy["model/weight"].numpy().tobytes() != exact["model/weight"].numpy().tobytes()


def test_snapshots_are_compared_by_identity(snapshot: ckptz.Snapshot, tmp_path: Path) -> None:
    ckptz.save_file(STATE, tmp_path / "one.ckptz")
    with (
        ckptz.safe_open(tmp_path / "one.ckptz") as one,
        ckptz.safe_open(tmp_path / "one.ckptz") as two,
    ):
        assert one == one
        assert one != two
        assert len({one, two, one}) == 2
        assert one != dict(one)


@pytest.mark.parametrize("name", [name for name in STATE if name != "plain"])
def test_what_a_view_says(snapshot: ckptz.Snapshot, name: str) -> None:
    view, array = snapshot[name], STATE[name]
    assert isinstance(array, np.ndarray)
    assert view.shape == array.shape
    assert view.dtype == array.dtype.newbyteorder("=")
    assert (view.ndim, view.size, view.nbytes) == (array.ndim, array.size, array.nbytes)
    assert view.path == name
    same(view.numpy(), array)
    same(np.asarray(view), array)
    same(view[...], array)
    assert np.asarray(view, dtype="O").dtype == object
    with pytest.raises(ValueError, match="without a copy"):
        np.array(view, copy=False)
    if array.shape:
        assert len(view) == len(array)
        for one, other in zip(view, array, strict=True):
            same(one, other)
    else:
        with pytest.raises(TypeError, match="without dimensions has no length"):
            len(view)
        with pytest.raises(TypeError):
            iter(view)


def same(found: Any, expected: Any) -> None:
    # NumPy shortens the dtype of a single text.
    text = isinstance(expected, np.str_)
    expected = np.asarray(expected, found.dtype if text else None)
    assert isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype.newbyteorder("=")
    assert found.shape == expected.shape
    assert found.tobytes() == expected.astype(found.dtype).tobytes()
    assert found.flags.writeable
    assert found.flags.c_contiguous


@stores.examples(300)
@given(st.sampled_from([name for name in STATE if name != "plain"]), st.data())
def test_any_index(snapshot: ckptz.Snapshot, name: str, data: st.DataObject) -> None:
    array = STATE[name]
    assert isinstance(array, np.ndarray)
    index = data.draw(
        st.one_of(
            hnp.basic_indices(array.shape, allow_newaxis=True),
            hnp.basic_indices(array.shape, allow_ellipsis=False),
            hnp.arrays(bool, array.shape),
            hnp.arrays(bool, array.shape[:1]) if array.ndim else st.just(()),
            hnp.integer_array_indices(array.shape) if array.size and array.ndim else st.just(()),
            st.just(slice(None)) if array.ndim else st.just(()),
        )
    )
    same(snapshot[name][index], array[index])


@pytest.mark.parametrize(
    "index",
    [
        slice(3, 7),
        slice(-3, None),
        slice(None, None, -1),
        slice(5, 1, -2),
        slice(4, 1),
        slice(-100, 100, 3),
        3,
        -1,
        np.int16(2),
        (2, 3),
        (slice(1, 3), -1),
        (Ellipsis, 1),
        (slice(1, 3), Ellipsis, slice(None, None, -1)),
        None,
        (None, 2),
        (2, None),
        (slice(1, 4), [0, 2]),
        (1, [0, 2], [1, 0]),
        (slice(1, 4), np.array([True, False, True, False, True])),
        [0, 2, 2],
        np.array([[0, 1], [5, 4]]),
        True,
        (),
    ],
    ids=str,
)
def test_indices(snapshot: ckptz.Snapshot, index: Any) -> None:
    same(snapshot["matrix"][index], STATE["matrix"][index])


@pytest.mark.parametrize("index", [6, -7, (0, 5), (0, 0, 0, 0), "x", 1.0, slice("a"), (0, "x")])
def test_what_is_no_index(snapshot: ckptz.Snapshot, index: Any) -> None:
    with pytest.raises((IndexError, TypeError)) as expected:
        STATE["matrix"][index]
    with pytest.raises(expected.type):
        snapshot["matrix"][index]


def test_results_are_memory_of_their_own(snapshot: ckptz.Snapshot) -> None:
    view = snapshot["matrix"]
    first = view[1:3]
    first[:] = 0
    same(view[1:3], STATE["matrix"][1:3])


# --- What is read --------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    read: list[int] = []
    real = Reader.read

    def counting(self: Reader, offset: int, length: int) -> Any:
        read.append(length)
        return real(self, offset, length)

    monkeypatch.setattr(Reader, "read", counting)
    # Nor does the core read by itself.
    monkeypatch.setattr(Reader, "payload", lambda self, start: None)
    return read


def test_only_the_chunks_that_are_needed_are_read(tmp_path: Path, counted: list[int]) -> None:
    rows, columns = 40, CHUNK // 2  # two rows a chunk
    array = np.random.default_rng(0).integers(0, 256, (rows, columns), dtype="u1")
    other = np.random.default_rng(1).integers(0, 256, rows * columns, dtype="u1")
    with ckptz.CheckpointManager(tmp_path) as manager:
        manager.save(0, {"other": other, "array": array})
        snapshot = manager.open()
    view = snapshot["array"]
    places: list[tuple[Any, int]] = [
        (slice(3, 7), 3),
        (slice(4, 6), 1),
        (5, 1),
        (-1, 1),
        ((5, slice(10, 20)), 1),
        (slice(0, 0), 0),
        (slice(10, 2, -3), 4),
        (slice(None), 20),
        (Ellipsis, 20),
    ]
    for index, chunks in places:
        counted.clear()
        same(view[index], array[index])
        # Random bytes do not compress: a chunk is stored as it is.
        assert sum(counted) == chunks * CHUNK, index
    counted.clear()
    assert (view.shape, view.dtype, view.nbytes) == (array.shape, array.dtype, array.nbytes)
    assert counted == []


def test_of_every_layer_only_the_chunks_that_are_needed_are_read(
    tmp_path: Path, counted: list[int]
) -> None:
    arrays = [stores.weights(0, (4 * CHUNK,))]
    with ckptz.CheckpointManager(tmp_path) as manager:
        for step in range(3):
            manager.save(step, {"w": arrays[-1]})
            arrays.append(arrays[-1] + np.float32(0.01) * stores.weights(step, (4 * CHUNK,)))
        snapshot = manager.open()
        sizes = [manager.stats(step).tensors["w"].bytes for step in range(3)]
        residual = manager.stats(2).residual_bytes
    counted.clear()
    same(snapshot["w"][CHUNK : CHUNK + 5], arrays[2][CHUNK : CHUNK + 5])
    assert len(counted) <= 4
    assert sum(counted) < (sum(sizes) + residual) / 3.5


def test_keys_read_only_their_tensors(tmp_path: Path, counted: list[int]) -> None:
    big = np.random.default_rng(0).integers(0, 256, 1 << 20, dtype="u1")
    with ckptz.CheckpointManager(tmp_path) as manager:
        manager.save(0, {"big": big, "small": np.arange(4), "n": 1})
        counted.clear()
        assert manager.restore(keys="n") == {"n": 1}
        assert sum(counted) < 140_000  # the end of the file for each, and the tensor
        counted.clear()
        same(manager.restore(keys="small")["small"], np.arange(4))
        assert sum(counted) < 140_000  # the end of the file for each, and the tensor


def test_unchanged_chunks_of_upper_layers_are_not_read(tmp_path: Path, counted: list[int]) -> None:
    array = np.random.default_rng(0).integers(0, 256, 8 * CHUNK, dtype="u1")
    changed = array.copy()
    changed[3 * CHUNK + 5] ^= 1
    with ckptz.CheckpointManager(tmp_path) as manager:
        manager.save(0, {"w": array})
        manager.save(1, {"w": changed})
        assert manager.stats(1).bytes < CHUNK + 500
        snapshot = manager.open()
    counted.clear()
    same(snapshot["w"][3 * CHUNK : 4 * CHUNK], changed[3 * CHUNK : 4 * CHUNK])
    assert sum(counted) <= 2 * CHUNK


# --- Flavours, closing ---------------------------------------------------------------------------


def test_torch_leaves(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install torch")
    tensor = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    half = torch.ones(4, 2, dtype=torch.bfloat16)
    ckptz.save_file({"t": tensor, "h": half, "f8": half.to(torch.float8_e5m2)}, tmp_path / "f")
    with ckptz.safe_open(tmp_path / "f") as snapshot:
        for index in (slice(1, 3), 2, (1, 2), Ellipsis, slice(None, None, -1)):
            found = snapshot["t"][index]
            assert type(found) is torch.Tensor
            assert torch.equal(found, torch.from_numpy(np.array(tensor.numpy()[index])))
        assert snapshot["h"][1].dtype == torch.bfloat16
        assert snapshot["f8"][1:].dtype == torch.float8_e5m2
        assert isinstance(snapshot["t"].numpy(), np.ndarray)
    with ckptz.safe_open(tmp_path / "f", as_numpy=True) as snapshot:
        same(snapshot["t"][1:3], tensor.numpy()[1:3])


def test_after_closing(tmp_path: Path) -> None:
    manager = ckptz.CheckpointManager(tmp_path)
    for step, tree in enumerate(stores.training(2)):
        manager.save(step, tree)
    with manager.open() as snapshot:
        view = snapshot["model/weight"]
    snapshot.close()
    with pytest.raises(ValueError, match="the files of step 1 have been closed"):
        view[0]
    assert view.shape == (50, 8)


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
def test_damage_shows_when_it_is_read(tmp_path: Path) -> None:
    manager = ckptz.CheckpointManager(tmp_path)
    array = np.random.default_rng(0).integers(0, 256, 2 * CHUNK, dtype="u1")
    manager.save(0, {"w": array})
    path = stores.snapshot_files(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[16 + CHUNK + 9] ^= 1
    path.write_bytes(data)
    manager.reload()
    with manager.open() as snapshot:
        same(snapshot["w"][:CHUNK], array[:CHUNK])
        with pytest.raises(ckptz.ChecksumError, match=f"offset {16 + CHUNK}: tensor w: chunk 1"):
            snapshot["w"][CHUNK:]
