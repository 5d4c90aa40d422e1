"""What metadata costs: little beside the payload, next to nothing for what has not changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager
from test_paper import SHARED, weights_of

CHUNK = 65_536


def overhead(manager: CheckpointManager, step: int) -> int:
    """Bytes of a snapshot file beside coded payload, representatives and code tables."""
    stats = manager.stats(step)
    coded = sum(t.bytes - t.header_bytes + t.table_bytes for t in stats.tensors.values())
    return stats.bytes - coded


def logistic(step: int) -> stores.State:
    """Like multinomial logistic regression, 784 x 10 and 10: 7,850 parameters."""
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(10, 784)) * 0.03, rng.normal(size=10) * 0.1
    for number in range(step):
        steps = np.random.default_rng(number)
        weight = weight - steps.normal(size=weight.shape) * steps.random(784) ** 4 * 1e-3
        bias = bias - steps.normal(size=10) * 1e-3
    return {"weight": weight.astype("f4"), "bias": bias.astype("f4")}


@pytest.mark.parametrize("policy", ["lossy", "lossy:1", "exact", "paper:2", "paper:3"])
def test_a_delta_of_a_small_model(tmp_path: Path, policy: str) -> None:
    with CheckpointManager(tmp_path, policy) as manager:
        for step in range(3):
            manager.save(step, logistic(step))
        for step in (1, 2):
            assert manager.stats(step).kind == "delta"
            assert overhead(manager, step) <= 160


@pytest.mark.skipif(SHARED is None, reason="needs the traces in shared/traces")
@pytest.mark.parametrize("policy", ["lossy", "paper:2", "paper:3"])
@pytest.mark.parametrize("trace", ["mlr/early_c1", "mlr/late_c50"])
def test_a_delta_of_a_real_small_model(tmp_path: Path, trace: str, policy: str) -> None:
    assert SHARED is not None
    with CheckpointManager(tmp_path, policy) as manager:
        for step, file in enumerate(sorted((SHARED / trace).glob("*.safetensors"))):
            tree = weights_of(file)
            manager.save(step, tree)
            if step:
                assert overhead(manager, step) <= 160
    assert sum(array.size for array in tree.values()) == 7850


@pytest.mark.parametrize("policy", ["lossy", "exact", "paper:3"])
def test_a_delta_of_many_tensors(tmp_path: Path, policy: str) -> None:
    """At most 24 bytes a tensor (its content sum included), 16 for each further chunk."""
    shapes = [(40, 9)] * 200 + [(CHUNK * 3 + 5,)] * 2

    def tree(step: int) -> dict[str, Any]:
        far = [stores.weights(n, shape) for n, shape in enumerate(shapes)]
        near = [stores.weights(n + 1000 * step, shape) for n, shape in enumerate(shapes)]
        return {
            f"layer{n}": one + np.float32(0.01) * other
            for n, (one, other) in enumerate(zip(far, near, strict=True))
        }

    with CheckpointManager(tmp_path, policy) as manager:
        for step in range(2):
            manager.save(step, tree(step))
        allowed = 160 + 24 * len(shapes) + 16 * 3 * 2
        assert overhead(manager, 1) <= allowed
        # The full one has its schema too, which names each tensor.
        assert overhead(manager, 0) <= allowed + 40 * len(shapes)


def test_what_has_not_changed_costs_a_byte_at_most(tmp_path: Path) -> None:
    tree = {f"layer{n}": stores.weights(n, (300,)) for n in range(1000)}
    tree |= {f"count{n}": np.arange(30) + n for n in range(200)}
    with CheckpointManager(tmp_path) as manager:
        manager.save(0, tree)
        manager.save(1, tree)
        stats = manager.stats(1)
        assert {tensor.bytes for tensor in stats.tensors.values()} == {1}
        # A run of equal bytes is compressed, too.
        assert stats.bytes <= 180
        assert stats.residual_bytes == 0
        assert stats.exact


def test_a_state_of_which_hardly_anything_changes(tmp_path: Path) -> None:
    """99 of 100 tensors as they were: dreamzero#90."""
    tree = {f"layer{n}": stores.weights(n, (50, 40)) for n in range(300)}
    with CheckpointManager(tmp_path) as manager:
        manager.save(0, tree)
        for step in range(1, 4):
            for n in range(3):
                name = f"layer{(17 * step + n) % 300}"
                tree[name] = tree[name] + np.float32(0.01)
            manager.save(step, tree)
            stats = manager.stats(step)
            changed = [t for t in stats.tensors.values() if t.kind != "same"]
            # Those that changed now, and earlier ones whose reconstruction comes nearer yet.
            assert 3 <= len(changed) <= 3 * step
            assert stats.bytes <= 200 + 24 * len(changed) + sum(t.bytes for t in changed)
            assert stats.residual_bytes < 200 + sum(t.raw_bytes for t in changed)
            assert stores.arrays_of(manager.restore()) == stores.arrays_of(tree)


def test_plain_values_cost_what_has_changed(tmp_path: Path) -> None:
    log = {f"metric{n}": float(n) for n in range(1000)}
    with CheckpointManager(tmp_path) as manager:
        manager.save(0, {"log": log, "step": 0})
        manager.save(1, {"log": log, "step": 1})
        manager.save(2, {"log": log | {"metric7": 0.5}, "step": 2})
        assert manager.stats(1).bytes <= 150
        assert manager.stats(2).bytes <= 160
        assert manager.restore(2)["log"]["metric7"] == 0.5
        assert manager.restore(1)["log"]["metric7"] == 7.0


def test_a_slice_is_stored_as_a_slice(tmp_path: Path) -> None:
    """pytorch#40157: not the memory behind it."""
    tree = {"w": np.random.default_rng(0).normal(size=1_000_000)[:1000]}
    with CheckpointManager(tmp_path) as manager:
        manager.save(0, tree)
        assert manager.stats(0).bytes < 9000
    ckptz.save_file(tree, tmp_path / "one")
    assert (tmp_path / "one").stat().st_size < 9000


def test_shared_tensors_are_stored_once(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=1000)
    ckptz.save_file({"a": array, "b": array, "c": array.copy()}, tmp_path / "one")
    assert (tmp_path / "one").stat().st_size < 8500


def test_the_policy_is_not_repeated(tmp_path: Path) -> None:
    rules = [ckptz.Rule(f"layer{n}/*", levels=2) for n in range(40)] + [ckptz.Rule("*")]
    tree: dict[str, Any] = {f"layer{n}": {"w": np.zeros(3)} for n in range(40)} | {"rest": 1}
    with CheckpointManager(tmp_path, rules) as manager:
        for step in range(3):
            manager.save(step, tree | {"rest": np.arange(step)})
        assert manager.stats(1).bytes < 2000
        assert manager.stats(2).bytes < 2000
    with CheckpointManager(tmp_path) as manager:
        assert manager.policy == ckptz.Policy(rules)
        tree["rest"] = np.arange(2)
        manager.save(3, tree)
        assert manager.stats(3).bytes < 250
