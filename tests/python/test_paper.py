"""The paper's method, by its own figures: the golden vector, and the reference over real traces."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores

TARGET = np.array([1.34, 1.02, 0.39, 1.37, 1.34, 1.77, 1.03, 1.58, 1.93, 1.03], "f4")
BASE = np.array([0.58, 1.5, 0.19, 1.3, 1.16, 1.28, 0.89, 1.19, 1.11, 0.94], "f4")
NEXT = [1.37, 1.02, 0.19, 1.3, 1.16, 1.72, 0.89, 1.63, 1.9, 0.94]

SHARED = next(
    (
        parent / "shared" / "traces"
        for parent in Path(__file__).resolve().parents
        if (parent / "shared" / "traces").is_dir()
    ),
    None,
)


def golden(path: Path, dtype: str, **options: Any) -> ckptz.CheckpointManager:
    policy = ckptz.Policy.paper(**options)
    manager = ckptz.CheckpointManager(path, policy)
    manager.save(0, {"u": BASE.astype(dtype)})
    manager.save(1, {"u": TARGET.astype(dtype)})
    return manager


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_golden_vector(tmp_path: Path, dtype: str) -> None:
    manager = golden(tmp_path, dtype, bits=2)
    record = stores.representatives(manager, 1)["u"]
    assert record["kind"] == "value"
    assert record["base"] == "previous"
    assert record["coding"] == "plain"
    assert record["representatives"] == pytest.approx([0.79, 0.44, -0.48], abs=1e-6)
    assert list(record["code_lengths"]) == [1, 2, 3, 3]
    restored = manager.restore(residual=False)["u"]
    assert restored.dtype == dtype
    assert restored == pytest.approx(NEXT, abs=1e-6)
    # Symbol 0 keeps the base's bits.
    kept = [2, 3, 4, 6, 9]
    assert restored[kept].tobytes() == BASE.astype(dtype)[kept].tobytes()
    assert manager.restore()["u"].tobytes() == TARGET.astype(dtype).tobytes()
    # |r - u| / |u - base|, as the header says.
    error = np.linalg.norm(restored - TARGET) / np.linalg.norm(TARGET - BASE)
    assert record["error"] == pytest.approx(error, rel=1e-2)


def test_the_paper_s_entry_sized_example_to_the_last_bit(tmp_path: Path) -> None:
    manager = golden(tmp_path, "f4", bits=2)
    delta = TARGET - BASE
    buckets = [delta[[0, 8]], delta[[5, 7]], delta[[1]]]
    middles = [np.float32((float(bucket.max()) + float(bucket.min())) / 2) for bucket in buckets]
    expected = BASE.copy()
    for bucket, middle in zip([[0, 8], [5, 7], [1]], middles, strict=True):
        expected[bucket] = BASE[bucket] + middle
    assert stores.representatives(manager, 1)["u"]["representatives"] == middles
    assert manager.restore(residual=False)["u"].tobytes() == expected.tobytes()


@pytest.mark.parametrize(("representative", "dropped"), [("mean", 0.1733), ("midrange", 0.17)])
def test_mean_and_midrange_of_the_dropped_bucket(
    tmp_path: Path, representative: Any, dropped: float
) -> None:
    # Seven buckets hold all five: (-1,+) (-2,+) (-2,-) (-3,+) (-4,+).
    manager = golden(tmp_path, "f8", bits=3, representative=representative)
    found = stores.representatives(manager, 1)["u"]["representatives"]
    exact = TARGET.astype("f8") - BASE.astype("f8")
    assert found[:3] == pytest.approx([0.79, 0.44, -0.48], abs=1e-6)
    assert found[3] == pytest.approx(dropped, abs=5e-5)
    if representative == "mean":
        assert found[3] == pytest.approx(exact[[2, 4, 6]].mean(), rel=1e-15)


def test_the_paper_s_rule_takes_every_float_tensor_of_any_size(tmp_path: Path) -> None:
    tree = {
        "scalar": np.array(1, "f4"),
        "one": np.ones(1, "f2"),
        "running_mean": np.ones(3, "f8"),
        "count": np.array([1, 2, 3]),
    }
    with ckptz.CheckpointManager(tmp_path, ckptz.Policy.paper(2)) as manager:
        manager.save(0, tree)
        moved = {name: np.asarray(array + array.dtype.type(1)) for name, array in tree.items()}
        manager.save(1, moved)
        kinds = {
            name: record["kind"] for name, record in stores.representatives(manager, 1).items()
        }
    assert kinds == {"scalar": "value", "one": "value", "running_mean": "value", "count": "bytes"}
    # One bucket in each: the representative is the delta, and nothing is lost.
    assert stores.arrays_of(stores.fresh(tmp_path, residual=False)) == stores.arrays_of(moved)


def test_the_paper_s_rule_has_no_references(tmp_path: Path) -> None:
    with ckptz.CheckpointManager(tmp_path, "paper:2") as manager:
        for step in range(2):
            array = stores.weights(step)
            manager.save(step, {"a": array, "b": array.copy()})
        kinds = {record["kind"] for record in stores.representatives(manager, 1).values()}
    assert kinds == {"value"}


def traces() -> list[Any]:
    if SHARED is None:
        return []
    reference = json.loads((SHARED / "paper_reference.json").read_text())
    return [pytest.param(name, found, id=name) for name, found in reference.items()]


@pytest.mark.skipif(SHARED is None, reason="needs the traces in shared/traces")
@pytest.mark.parametrize(("trace", "reference"), traces())
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_reference_over_real_traces(
    tmp_path: Path, trace: str, reference: dict[str, Any], bits: int
) -> None:
    assert SHARED is not None
    manager = ckptz.CheckpointManager(
        tmp_path, ckptz.Policy.paper(bits), exact="none", full_every=0
    )
    digests, sizes = [], []
    for step, file in enumerate(sorted((SHARED / trace).glob("*.safetensors"))):
        tree = weights_of(file)
        manager.save(step, tree)
        if step:
            restored = manager.restore(step, residual=False)
            joined = b"".join(restored[name].tobytes() for name in sorted(restored))
            digests.append(hashlib.sha256(joined).hexdigest()[:16])
            records = manager.stats(step).tensors.values()
            sizes.append(8 * sum(record.bytes - record.header_bytes for record in records))
    found = reference[f"x={bits} midrange"]
    assert len(tree) == reference["tensors"]
    assert digests == found["sha256_16"]
    # Of each chunk there are four streams, padded to bytes, and their lengths.
    chunks = sum(-(-array.size // 65_536) for array in tree.values())
    for size, payload in zip(sizes, found["payload_bits"], strict=True):
        assert payload <= size <= payload + 90 * chunks


def weights_of(file: Path) -> dict[str, Any]:
    from ckptz.inputs import open_input

    with open_input(file) as opened:
        state: Any = opened.state()
    return {
        name: array
        for name, array in state.items()
        if name.startswith("model.") and array.dtype == np.float32 and "running" not in name
    }
