"""Predicted bases: found by data, taken where they pay, restored bit for bit by every way in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from ckptz import encode
from ckptz.policy import Policy, Rule
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import read_ckptz

State = dict[str, Any]
F4 = np.float32
SHAPES = {"a": (40, 30), "b": (40, 30), "c": (500,)}


@np.errstate(all="ignore")  # in float16 there is no 1e-8, and so soon no number
def training(kind: str, seed: int = 0, steps: int = 5, dtype: Any = F4) -> list[State]:
    """States of every iteration, as SGD with momentum or Adam makes them of random gradients."""
    rng = np.random.default_rng(seed)
    weights = {k: rng.normal(0, 0.05, shape).astype(dtype) for k, shape in SHAPES.items()}
    first = {k: np.zeros(shape, dtype) for k, shape in SHAPES.items()}
    second = {k: np.full(shape, 1e-8, dtype) for k, shape in SHAPES.items()}
    one = dtype(1)
    states: list[State] = []
    for step in range(steps + 20):
        if step >= 20:
            moments = (
                {"m": dict(first), "v": dict(second)} if kind == "adam" else {"m": dict(first)}
            )
            states.append({"model": dict(weights), "optimizer": moments, "step": step})
        for k, shape in SHAPES.items():
            rows = 1 + np.arange(shape[-1]) % 5
            g = (rng.standard_t(4, shape) * 1e-3 * rows).astype(dtype)
            first[k] = dtype(0.9) * first[k] + (one - dtype(0.9)) * g
            if kind == "adam":
                second[k] = dtype(0.99) * second[k] + dtype(0.01) * (g * g)
                direction = first[k] / (np.sqrt(second[k]) + dtype(1e-8))
                weights[k] = weights[k] * dtype(0.9999) + dtype(-1e-3) * direction
            else:
                weights[k] = weights[k] + dtype(-0.01) * first[k]
    return states


def same(restored: Any, saved: State) -> None:
    for part in ("model", "optimizer"):
        for path, value in leaves(saved[part], part):
            got = restored
            for key in path.split("/"):
                got = got[key]
            assert got.tobytes() == value.tobytes(), path


def leaves(tree: Any, path: str) -> list[tuple[str, Any]]:
    if not isinstance(tree, dict):
        return [(path, tree)]
    return [leaf for key, value in tree.items() for leaf in leaves(value, f"{path}/{key}")]


def save_all(folder: Path, states: list[State], policy: Any, **options: Any) -> None:
    with ckptz.CheckpointManager(folder, policy, **options) as manager:
        for step, state in enumerate(states):
            manager.save(step, state)


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_exact_states_take_little_more_than_their_gradients(tmp_path: Path, kind: str) -> None:
    states = training(kind)
    save_all(tmp_path / "with", states, "exact")
    save_all(tmp_path / "without", states, Rule(mode="exact", base="unpredicted"))
    reader = ckptz.CheckpointManager(tmp_path / "with", readonly=True)
    for step, state in enumerate(states):
        same(reader.restore(step), state)
    assert reader.verify().ok
    stats = reader.stats(4)
    for name in SHAPES:
        weights = stats.tensors[f"model/{name}"]
        assert weights.base == "predicted"
        assert weights.kind == "difference"
        assert weights.siblings[0] == f"optimizer/m/{name}"
        assert weights.ratio > 6
        if kind == "adam":
            assert weights.siblings[1] == f"optimizer/v/{name}"
            second = stats.tensors[f"optimizer/v/{name}"]
            assert second.siblings == (f"optimizer/m/{name}",)
            assert second.ratio > 6
    without = ckptz.CheckpointManager(tmp_path / "without", readonly=True).stats(4)
    assert all(t.base != "predicted" for t in without.tensors.values())
    assert without.bytes > (1.9 if kind == "adam" else 1.4) * stats.bytes


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_lossy_weights_take_less_at_no_larger_error(tmp_path: Path, kind: str) -> None:
    states = training(kind, steps=6)
    taken = {}
    for name, base in (("with", "auto"), ("without", "unpredicted")):
        save_all(tmp_path / name, states, Rule(base=base))  # type: ignore[arg-type]
        reader = ckptz.CheckpointManager(tmp_path / name, readonly=True)
        records = reader.stats(5).tensors
        restored = reader.restore(5, residual=False)
        off = [np.linalg.norm(restored["model"][k] - states[5]["model"][k]) for k in SHAPES]
        taken[name] = sum(records[f"model/{k}"].bytes for k in SHAPES), float(np.linalg.norm(off))
        same(reader.restore(5), states[5])
    # Headers are most of what such small tensors take.
    assert taken["with"][0] < 0.9 * taken["without"][0]
    assert taken["with"][1] <= 1.05 * taken["without"][1]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(["momentum", "adam"]),
    mode=st.sampled_from(["auto", "exact"]),
    seed=st.integers(0, 99),
    dtype=st.sampled_from([np.float32, np.float64, np.float16]),
    full_every=st.sampled_from([0, 3]),
)
def test_every_way_in_gives_what_the_writer_had(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    mode: str,
    seed: int,
    dtype: Any,
    full_every: int,
) -> None:
    folder = tmp_path_factory.mktemp("store")
    states = training(kind, seed, 4, dtype)
    for step, state in enumerate(states):
        # A manager for each step: what is known of siblings comes from the store.
        with ckptz.CheckpointManager(
            folder,
            Rule(mode=mode),  # type: ignore[arg-type]
            exact="none",
            full_every=full_every,
        ) as manager:
            manager.save(step, state)
            assert manager._writer._base is not None
            base = list(manager._writer._base.arrays)
        reader = ckptz.CheckpointManager(folder, readonly=True)
        restored = reader.restore(step)
        paths = [path for path, _ in leaves(state["model"], "model")]
        paths += [path for path, _ in leaves(state["optimizer"], "optimizer")]
        snapshot = reader.open(step)
        plain = read_ckptz.Store(str(folder)).restore(step)
        for path, content in zip(paths, base, strict=True):
            whole = reader.restore(step, keys=path)[path]
            assert whole.tobytes() == content.tobytes(), path
            assert snapshot[path][3:17].tobytes() == whole[3:17].tobytes(), path
            assert np.asarray(plain[path]).tobytes() == content.tobytes(), path
        if mode == "exact":
            same(restored, state)


def test_a_manager_opened_anew_writes_what_one_that_went_on_does(tmp_path: Path) -> None:
    states = training("adam", steps=6)
    save_all(tmp_path / "on", states, "lossy", full_every=4)
    for step, state in enumerate(states):
        with ckptz.CheckpointManager(tmp_path / "anew", "lossy", full_every=4) as manager:
            manager.save(step, state)
    on, anew = (ckptz.CheckpointManager(tmp_path / name, readonly=True) for name in ("on", "anew"))
    for step in range(len(states)):
        assert on.stats(step).tensors == anew.stats(step).tensors


def test_only_files_with_predicted_bases_say_so(tmp_path: Path) -> None:
    states = training("momentum", steps=3)
    save_all(tmp_path / "with", states, "exact", full_every=2)
    save_all(tmp_path / "without", states, Rule(mode="exact", base="unpredicted"))
    headers = [stores.header_of(path) for path in sorted((tmp_path / "with").glob("*.ckptz"))]
    assert headers == [(0, 0), (1, 2), (0, 0)]
    assert {stores.header_of(path) for path in (tmp_path / "without").glob("*.ckptz")} == {(0, 0)}


def test_a_file_that_does_not_say_so_is_refused(tmp_path: Path) -> None:
    save_all(tmp_path, training("momentum", steps=2), "exact")
    stores.strip_features(sorted(tmp_path.glob("*.ckptz"))[1])
    with pytest.raises(ckptz.FormatError, match="feature bit"):
        ckptz.CheckpointManager(tmp_path, readonly=True).restore(1)
    with pytest.raises(read_ckptz.FormatError, match="feature bit"):
        read_ckptz.Store(str(tmp_path)).restore(1)


def test_damage_of_a_sibling_is_named(tmp_path: Path) -> None:
    save_all(tmp_path, training("momentum", steps=2), "exact")
    path = sorted(tmp_path.glob("*.ckptz"))[1]
    data = bytearray(path.read_bytes())
    data[16 + 40] ^= 1  # the first record in the payload is the first sibling
    path.write_bytes(data)
    reader = ckptz.CheckpointManager(tmp_path, readonly=True)
    with pytest.raises(ckptz.FormatError, match="tensor optimizer/m/a"):
        reader.restore(1, keys="model/a")


def test_siblings_are_found_within_what_is_copied_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "_COPY_BYTES", 6000)
    states = training("momentum", steps=3)
    turned = [
        {part: {k: v.T if k != "c" else v for k, v in tensors.items()} for part, tensors in both}
        for both in ([("model", s["model"]), ("optimizer", s["optimizer"]["m"])] for s in states)
    ]
    save_all(tmp_path, turned, "exact")
    reader = ckptz.CheckpointManager(tmp_path, readonly=True)
    for step, state in enumerate(turned):
        restored = reader.restore(step)
        for part, tensors in state.items():
            for k, value in tensors.items():
                assert np.array_equal(restored[part][k], value)
    assert reader.verify().ok


def test_policies_without_the_dial_are_stored_as_before() -> None:
    assert all(len(rule) == 8 for rule in Policy.lossy().to_builtins())
    chosen = Policy.of(Rule(base="unpredicted"))
    assert Policy.from_builtins(chosen.to_builtins()) == chosen
    with pytest.raises(ckptz.PolicyError, match="base='own'"):
        Rule(base="own")  # type: ignore[arg-type]


def test_weights_that_nothing_predicts_are_left_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    states = [
        {"model": {k: rng.normal(size=s).astype(F4) for k, s in SHAPES.items()}, "optimizer": {}}
        for _ in range(3)
    ]
    save_all(tmp_path, states, "lossy", exact="none")
    stats = ckptz.CheckpointManager(tmp_path, readonly=True).stats(2)
    assert {t.base for t in stats.tensors.values()} <= {"previous", "zero"}
