"""Bounds on every entry's error: they hold in every reconstruction, and are looked at again."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import ckptz
import evolving
import ml_dtypes
import numpy as np
import pytest
import stores
from ckptz import BoundError, CheckpointManager, Policy, Rule, codec
from ckptz.bounds import check_bounds
from ckptz.outputs import write_npz
from cli_tools import run
from hypothesis import given
from hypothesis import strategies as st


def beyond(rule: Rule, original: Any, restored: Any) -> tuple[float, float] | None:
    """The first entry that breaks a rule's bounds, in whole numbers: the plain twin."""
    original, restored = np.ravel(original), np.ravel(restored)
    differ = original.view(f"V{original.itemsize}") != restored.view(f"V{restored.itemsize}")
    for at in np.flatnonzero(differ):
        u, r = float(original[at]), float(restored[at])
        if not math.isfinite(u) or not math.isfinite(r):
            if not (math.isnan(u) and math.isnan(r)):
                return u, r
            continue
        error = abs(Fraction(r) - Fraction(u))
        if rule.max_error is not None and error > Fraction(rule.max_error):
            return u, r
        if rule.max_rel_error is not None and error > Fraction(rule.max_rel_error) * abs(
            Fraction(u)
        ):
            return u, r
    return None


def bounded_rules() -> st.SearchStrategy[Rule]:
    """Draw rules with a bound, or both, and any dials beside."""
    sizes = st.sampled_from([1e-30, 1e-7, 1e-4, 0.003, 0.5, 1e5, 2.0**-10])
    both = st.tuples(st.none() | sizes, st.none() | sizes).filter(any)
    return st.builds(
        lambda bounds, **dials: Rule(max_error=bounds[0], max_rel_error=bounds[1], **dials),
        both,
        mode=st.sampled_from(["auto", "lossy"]),
        levels=st.sampled_from([None, 1, 5, 7]),
        domain=st.sampled_from(["auto", "auto", "value", "ordered"]),
        representative=st.sampled_from(["mean", "midrange"]),
        refinement=st.sampled_from([0, 0, 2]),
        coding=st.sampled_from(["auto", "plain"]),
        base=st.sampled_from(["auto", "unpredicted"]),
    )


SHAPES = [(16,), (17, 3), (300,), (64, 40)]
STEPS = st.lists(evolving.changes(), min_size=2, max_size=4)


@pytest.mark.filterwarnings("ignore:.*not finite")
@given(bounded_rules(), STEPS, st.integers(0, 2**32))
@stores.examples(25)
def test_every_entry_keeps_to_its_bound_at_every_step(
    tmp_path_factory: pytest.TempPathFactory, rule: Rule, steps: Any, seed: int
) -> None:
    """What a fresh reader has without residuals; the same files with one thread and with two."""
    one, two = (tmp_path_factory.mktemp(name) for name in ("one", "two"))
    tree = evolving.beginning(seed, SHAPES)
    states: list[stores.State] = []
    for changes in [[], *steps]:
        for change in changes:
            tree = evolving.apply(tree, change, SHAPES)
        states.append(tree)
    for path, threads in ((one, 1), (two, 2)):
        with stores.clock(), CheckpointManager(path, rule, threads=threads) as manager:
            for step, state in enumerate(states):
                manager.save(step, state)
            assert manager.verify().ok
    assert stores.files(one) == stores.files(two)
    for step, state in enumerate(states):
        restored = stores.fresh(one, step=step, residual=False)
        for name, array in state.items():
            if isinstance(array, np.ndarray) and str(array.dtype) in evolving.FLOATS:
                found = beyond(rule, array, restored[name])
                assert found is None, (step, name, array.dtype, found)
            elif isinstance(array, np.ndarray):
                assert array.tobytes() == restored[name].tobytes()


@pytest.mark.filterwarnings("ignore:.*not finite")
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("bounds", [{"max_error": 1e-3}, {"max_rel_error": 0.01}], ids=str)
def test_large_tensors(tmp_path: Path, kind: str, bounds: dict[str, Any]) -> None:
    """Planned from samples, which do not hold what is far off."""
    rule, rng = Rule(**bounds), np.random.default_rng(1)
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    value = rng.normal(0, 0.05, 300_000)
    with CheckpointManager(tmp_path, rule, exact="none") as manager:
        for step in range(3):
            state = {"w": value.astype(dtype)}
            state["w"][[70_001, 290_000]] = [3e4 * step, np.nan]
            manager.save(step, state)
            assert beyond(rule, state["w"], manager.restore(step)["w"]) is None
            value = value + rng.standard_t(3, value.size) * 1e-3
        # Two bytes hold little more than a bound leaves to be told.
        assert manager.stats(2).tensors["w"].lossy or dtype.itemsize == 2
        assert manager.stats(2).ratio > (2 if dtype.itemsize > 2 else 1.2)


def test_predicted_bases_too(tmp_path: Path) -> None:
    rule = Rule(max_error=1e-5)
    with CheckpointManager(tmp_path, rule, exact="none") as manager:
        bases = set()
        for step, state in enumerate(itertools.islice(stores.training(6, size=8000), 6)):
            manager.save(step, state)
            restored = manager.restore(step)
            for part, name in [("model", "weight"), ("optimizer", "exp_avg")]:
                assert beyond(rule, state[part][name], restored[part][name]) is None
            record = manager.stats(step).tensors["model/weight"]
            bases.add((record.base, record.lossy))
    assert ("predicted", True) in bases


def test_tighter_bounds_take_more(tmp_path: Path) -> None:
    states = list(itertools.islice(stores.training(3, size=8000), 3))
    sizes = []
    for number, most in enumerate([1.0, 1e-3, 1e-4, 1e-5, 1e-6, 1e-30]):
        rule = Rule(max_error=most, base="unpredicted")
        with CheckpointManager(tmp_path / str(number), rule, exact="none") as manager:
            for step, state in enumerate(states):
                manager.save(step, state)
            record = manager.stats(2).tensors["model/weight"]
            sizes.append(record.bytes)
            assert record.lossy == (most > 1e-30)
    assert sizes == sorted(sizes)
    assert sizes[0] * 4 < sizes[3] < sizes[-1]


@pytest.mark.parametrize(
    "fields",
    [
        {"max_error": 0},
        {"max_error": -1e-3},
        {"max_error": math.inf},
        {"max_error": math.nan},
        {"max_error": True},
        {"max_error": "1e-3"},
        {"max_error": np.bool_(True)},
        {"max_error": np.float32(math.nan)},
        {"max_error": np.array(1e-3)},
        {"max_error": 1j},
        {"max_error": 10**400},
        {"max_rel_error": 0.0},
        {"max_rel_error": -math.inf},
        {"max_rel_error": False},
        {"max_error": 1e-3, "mode": "paper"},
        {"max_rel_error": 1e-3, "mode": "exact"},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_bounds_that_cannot_be(fields: dict[str, Any]) -> None:
    (name,) = fields.keys() & {"max_error", "max_rel_error"}
    with pytest.raises(ckptz.PolicyError, match=f"^{name}="):
        Rule(**fields)


@pytest.mark.parametrize(
    "number", [np.float32(1e-3), np.float16(1e-3), np.int8(3), np.float64(1e-3), Fraction(1, 3)]
)
def test_any_real_number_is_a_bound(tmp_path: Path, number: Any) -> None:
    rule = Rule(max_error=number)
    assert type(rule.max_error) is float
    assert rule.max_error == float(number)
    with CheckpointManager(tmp_path, rule) as manager:
        manager.save(0, stores.small())
    assert CheckpointManager(tmp_path).policy == Policy([rule])


def test_bounds_are_recorded_with_the_policy(tmp_path: Path) -> None:
    policy = Policy([Rule("a", max_error=1), Rule("*", max_error=0.1, max_rel_error=1e-3)])
    assert policy == Policy([Rule("a", max_error=1.0), Rule(max_rel_error=1e-3, max_error=0.1)])
    with CheckpointManager(tmp_path, policy) as manager:
        manager.save(0, {"a": np.ones(20)})
    assert CheckpointManager(tmp_path, readonly=True).policy == policy
    # A rule without bounds is stored as before there were any.
    assert len(Policy([Rule("a")]).to_builtins()[0]) == 8


def test_a_tied_tensor_keeps_to_all_its_bounds(tmp_path: Path) -> None:
    tight = Rule("b", max_error=1e-4, max_rel_error=0.5)
    rules = [Rule("a", max_error=0.1, base="unpredicted"), tight, Rule("*", mode="paper")]
    with CheckpointManager(tmp_path, rules, exact="none") as manager:
        for step in range(3):
            w = stores.weights(0) + stores.weights(step) * np.float32(0.01)
            manager.save(step, {"a": w, "b": w, "c": {"b": w}})
            assert beyond(tight, w, manager.restore(step)["a"]) is None
        assert manager.stats(2).tensors["a"].lossy


def test_a_tied_tensor_that_the_paper_codes_is_exact_for_a_bound(tmp_path: Path) -> None:
    rules = [Rule("a", mode="paper"), Rule("b", max_error=1e-4)]
    with CheckpointManager(tmp_path, rules, exact="none") as manager:
        for step in range(2):
            w = stores.weights(0) + stores.weights(step) * np.float32(0.01)
            manager.save(step, {"a": w, "b": w})
        assert not manager.stats(1).tensors["a"].lossy


def test_a_rounding_is_no_reference_to_what_is_bounded(tmp_path: Path) -> None:
    """Its own error would come on top."""
    rule = Rule(max_error=1e-3)

    def tree(step: int) -> dict[str, Any]:
        master = stores.weights(99, (50, 40)) + np.float32(0.01) * stores.weights(step, (50, 40))
        return {"master": master, "half": master.astype("f2"), "copy": master.copy()}

    with CheckpointManager(tmp_path, rule, exact="none") as manager:
        for step in range(3):
            manager.save(step, tree(step))
            restored = manager.restore(step)
            assert all(beyond(rule, u, restored[k]) is None for k, u in tree(step).items())
        kinds = [manager.stats(2).tensors[name].kind for name in tree(0)]
    assert kinds[0] != "link" != kinds[1]
    assert kinds[2] == "link"


def test_arrays_without_a_store() -> None:
    target, base = stores.weights(0) + np.float32(1e-3) * stores.weights(1), stores.weights(0)
    before, rule = base.copy(), Rule(max_rel_error=1e-4)
    data = codec.encode(target, base, rule)
    assert beyond(rule, target, base) is None
    assert codec.decode(data, before).tobytes() == base.tobytes()


def test_what_is_beyond_a_bound_is_told() -> None:
    u = np.array([1.0, -2.0, 0.0, np.nan], np.float32)
    r = np.array([1.0, -2.25, 0.0, np.nan], np.float32)
    check_bounds(Rule(max_error=0.25, max_rel_error=0.125), "w", r, u)
    with pytest.raises(BoundError, match=r"^w: a largest error of 0.25, above max_error=0.2$"):
        check_bounds(Rule(max_error=0.2), "w", r, u)
    with pytest.raises(BoundError, match=r"relative error of 0.125, above max_rel_error=0.1$"):
        check_bounds(Rule(max_error=1, max_rel_error=0.1), "w", r, u)
    with pytest.raises(BoundError, match="relative error of inf"):
        check_bounds(Rule(max_rel_error=1e300), "w", r + np.float32(1e-40), u)
    with pytest.raises(BoundError, match="error of inf"):
        check_bounds(Rule(max_error=1e300), "w", r * np.float32(np.nan), u)


# --- verify --against ---------------------------------------------------------------------------

BOUNDS = [Rule("w", max_error=1e-4), Rule("v", max_rel_error=1e-2, every=2), Rule("*")]


def packed(folder: Path, policy: list[Rule], steps: int = 4, **options: Any) -> Path:
    """Save states that are also files; return the store."""
    (folder / "run").mkdir()
    with CheckpointManager(folder / "store", policy, **options) as manager:
        for step in range(steps):
            near = np.float32(0.01) * stores.weights(step + 1)
            state = {"w": stores.weights(0) + near, "v": stores.weights(9) + near}
            write_npz(folder / "run" / f"{step}.npz", state)
            manager.save(step, state)
    return folder / "store"


def problems(folder: Path, store: Path) -> list[tuple[int, str, str]]:
    """Step, key path and what `verify --against` says of it."""
    ran = run("verify", store, "--against", folder / "run", "--json")
    found = [
        (one["step"], row["path"], row["problem"])
        for one in ran.document["compared"]
        for row in one["tensors"]
        if row["problem"]
    ]
    assert ran.code == (1 if found else 0)
    return found


@pytest.mark.parametrize("exact", ["latest", "none"])
def test_verify_finds_the_bounds_kept(tmp_path: Path, exact: Any) -> None:
    """A tensor that is left as it was is not looked at: `v` at every second step."""
    store = packed(tmp_path, BOUNDS, exact=exact)
    assert problems(tmp_path, store) == []
    with CheckpointManager(store, readonly=True) as manager:
        assert [manager.stats(step).tensors["v"].age for step in manager] == [0, 1, 0, 1]
        assert manager.stats(2).tensors["w"].error > 0


@pytest.mark.parametrize("exact", ["latest", "none"])
def test_verify_finds_what_is_beyond(
    tmp_path: Path, exact: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that does not keep to what it records; the newest step has a residual, or none."""
    free = codec.spec_for
    monkeypatch.setattr(
        codec, "spec_for", lambda _, *rest: free(Rule("*", base="unpredicted"), *rest)
    )
    store = packed(tmp_path, BOUNDS, exact=exact)
    found = problems(tmp_path, store)
    assert [(step, path) for step, path, _ in found] == [(1, "w"), (2, "w"), (2, "v"), (3, "w")]
    assert all("above max_error=0.0001" in what for _, path, what in found if path == "w")
    assert all("above max_rel_error=0.01" in what for _, path, what in found if path == "v")
    ran = run("verify", store, "--against", tmp_path / "run")
    assert (ran.code, ran.err) == (1, "")
    assert "DIFFERS: a largest error of" in ran.out


def test_verify_goes_by_the_policy_of_each_step(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    rules = [Rule(max_error=1e-4), Rule(), Rule(max_error=0.5)]
    for step, rule in enumerate([rules[0], *rules]):
        with CheckpointManager(tmp_path / "store", rule, exact="none") as manager:
            state = {"w": stores.weights(0) + np.float32(0.01) * stores.weights(step + 1)}
            write_npz(tmp_path / "run" / f"{step}.npz", state)
            manager.save(step, state)
    assert problems(tmp_path, tmp_path / "store") == []
    for step in range(4):
        state = {"w": stores.weights(0) + np.float32(0.01) * stores.weights(step + 1) + 0.1}
        write_npz(tmp_path / "run" / f"{step}.npz", state)
    assert [step for step, _, _ in problems(tmp_path, tmp_path / "store")] == [0, 1]
