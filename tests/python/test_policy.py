"""Policies: which rule a tensor gets, what the default does by content and name, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ckptz
import ml_dtypes
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager, Policy, Rule
from trees import assert_same


def kinds(path: Path, first: Any, second: Any, policy: Any = None) -> dict[str, Any]:
    """What the headers of the second of two saves say; checks that both come back."""
    with CheckpointManager(path, policy) as manager:
        manager.save(0, first)
        manager.save(1, second)
        assert_same(manager.restore(), second)
        assert stores.arrays_of(stores.fresh(path, residual=False)) == stores.base_of(manager)
        return stores.representatives(manager, 1)


def moved(tree: dict[str, Any], by: float = 0.01) -> dict[str, Any]:
    """Each float tensor a little further on."""
    return {
        name: np.asarray(array + (stores.weights(7, array.shape) * by).astype(array.dtype))
        if array.dtype.kind in "fV"
        else array + 1
        for name, array in tree.items()
    }


def test_names_of_policies() -> None:
    assert Policy.of("lossy") == Policy.lossy() == Policy([Rule("*", mode="auto", levels=3)])
    assert Policy.of("lossy:5") == Policy.lossy(levels=5)
    assert Policy.of("exact") == Policy.exact()
    assert Policy.of("paper") == Policy.paper() == Policy.of("paper:3")
    assert Policy.of("paper:1") == Policy.paper(bits=1)
    assert Policy.of(Rule("x")) == Policy([Rule("x")]) == Policy.of([Rule("x")])
    assert Policy.of(Policy.exact()) == Policy.exact()
    assert len({Policy.lossy(), Policy.of("lossy"), Policy.exact()}) == 2
    assert eval(repr(Policy.lossy())) == Policy.lossy()
    assert Policy.lossy() != "lossy"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Lossy",
        "lossy:",
        "lossy:x",
        "lossy:0",
        "lossy:8",
        "exact:1",
        "paper:5",
        "paper:-1",
        "lossy:" + "9" * 5000,
    ],
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ckptz.PolicyError):
        Policy.of(name)


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "lossless"},
        {"domain": "log"},
        {"representative": "median"},
        {"coding": "zip"},
        {"levels": 0},
        {"levels": 8},
        {"levels": 2.0},
        {"levels": True},
        {"refinement": -1},
        {"refinement": 24},
        {"refinement": None},
        {"bits": 2},
        {"mode": "paper", "bits": 5},
        {"mode": "paper", "levels": 2},
        {"mode": "exact", "levels": 2},
        {"pattern": 3},
    ],
    ids=str,
)
def test_rules_that_cannot_be(fields: dict[str, Any]) -> None:
    with pytest.raises(ckptz.PolicyError):
        Rule(**fields)


def test_policies_that_cannot_be(tmp_path: Path) -> None:
    for rules, text in (
        ([], "needs at least one rule"),
        (["*"], r"'\*' is not a ckptz\.Rule"),
        ([Rule(), None], r"None is not a ckptz\.Rule"),
        (3, "^3 is no policy: give one, its rules, or its name"),
    ):
        with pytest.raises(ckptz.PolicyError, match=text):
            CheckpointManager(tmp_path, rules)  # type: ignore[arg-type]


def test_the_first_rule_that_matches_counts(tmp_path: Path) -> None:
    tree = {name: stores.weights(n, (40, 30)) for n, name in enumerate("abcd")}
    policy = [
        Rule("a", mode="exact"),
        Rule("[ab]", levels=1, domain="value"),
        Rule("c", mode="lossy", domain="ordered", levels=2),
        Rule("model*"),
    ]
    with pytest.warns(ckptz.CkptzWarning, match=r"'model\*' matches no tensor"):
        found = kinds(tmp_path, tree, moved(tree), policy)
    assert found["a"]["kind"] == "difference"
    assert found["b"]["kind"] == "value"
    assert len(found["b"]["representatives"]) <= 2
    assert found["c"]["kind"] == "ordered"
    # No rule at all: exact.
    assert found["d"]["kind"] == "difference"


def test_globs_match_across_slashes_and_case_counts(tmp_path: Path) -> None:
    model, opt = {"w": stores.weights(0)}, {"w": stores.weights(1)}
    tree = {"Model": {"fc": model}, "opt": opt}
    near = {"Model": {"fc": moved(model)}, "opt": moved(opt)}
    with pytest.warns(ckptz.CkptzWarning, match="matches no tensor") as caught:
        found = kinds(tmp_path, tree, near, [Rule("model*"), Rule("Model*w"), Rule("opt")])
    assert [str(one.message).split("'")[1] for one in caught] == ["model*", "opt"]
    assert found["Model/fc/w"]["lossy"]
    assert not found["opt/w"]["lossy"]


def test_the_default_by_content_and_name(tmp_path: Path) -> None:
    tree = {
        "weight": stores.weights(0, (50, 40)),
        "half": stores.weights(1, (50, 40)).astype("f2"),
        "brain": stores.weights(2, (50, 40)).astype(ml_dtypes.bfloat16),
        "double": stores.weights(3, (50, 40)).astype("f8"),
        "exp_avg_sq": stores.weights(4, (50, 40)) ** 2,
        "bn.running_mean": stores.weights(5, (50, 40)),
        "bn.running_var": stores.weights(6, (50, 40)) ** 2,
        "batch_stats": stores.weights(7, (50, 40)),
        "scalar": np.array(1, "f4"),
        "fifteen": stores.weights(8, (15,)),
        "integers": np.arange(40),
        "complex": stores.weights(9, (30,)).astype("c8"),
        "eight": stores.weights(10, (30,)).astype(ml_dtypes.float8_e4m3fn),
    }
    near = moved(tree) | {"exp_avg_sq": np.abs(moved(tree)["exp_avg_sq"])}
    found = kinds(tmp_path, tree, near)
    assert {name for name, record in found.items() if record["lossy"]} == {
        "weight",
        "half",
        "brain",
        "double",
        "exp_avg_sq",
    }
    assert found["weight"]["kind"] == "value"
    assert len(found["weight"]["representatives"]) <= 6
    assert found["exp_avg_sq"]["kind"] == "ordered non-negative"
    assert len(found["exp_avg_sq"]["representatives"]) <= 4


def test_mode_lossy_does_not_look_at_names(tmp_path: Path) -> None:
    tree = {"running_mean": stores.weights(0, (50, 40))}
    assert kinds(tmp_path, tree, moved(tree), Rule(mode="lossy"))["running_mean"]["lossy"]


def test_non_negative_stays_non_negative(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with CheckpointManager(tmp_path, "lossy:1", exact="none") as manager:
        for step in range(12):
            second = (rng.normal(size=3000) ** 2 * 10.0 ** rng.integers(-30, 3, 3000)).astype("f4")
            manager.save(step, {"exp_avg_sq": second})
            found = manager.restore(step)["exp_avg_sq"]
            assert (found >= 0).all()
            assert not np.signbit(found).any()
            assert np.isfinite(np.sqrt(found)).all()


def test_tensors_that_are_equal_or_rounded_are_references(tmp_path: Path) -> None:
    def tree(step: int) -> dict[str, Any]:
        master = stores.weights(99, (50, 40)) + np.float32(0.01) * stores.weights(step, (50, 40))
        return {
            "master": master,
            "model": master.astype(ml_dtypes.bfloat16),
            "half": master.astype("f2"),
            "copy": master.copy(),
        }

    found = kinds(tmp_path, tree(0), tree(1))
    assert [found[name]["kind"] for name in tree(0)] == ["value", "link", "link", "link"]
    with CheckpointManager(tmp_path) as manager:
        restored = manager.restore(residual=False)
        assert_same(restored["model"], restored["master"].astype(ml_dtypes.bfloat16))
        assert manager.stats(1).tensors["half"].link == "master"


def test_an_exact_tensor_is_no_reference_to_a_lossy_one(tmp_path: Path) -> None:
    def tree(step: int) -> dict[str, Any]:
        weight = stores.weights(99, (50, 40)) + np.float32(0.01) * stores.weights(step, (50, 40))
        return {"model": weight, "running_mean": weight.copy()}

    found = kinds(tmp_path, tree(0), tree(1))
    assert found["model"]["lossy"]
    assert found["running_mean"]["kind"] == "difference"
    with CheckpointManager(tmp_path) as manager:
        assert_same(manager.restore(residual=False)["running_mean"], tree(1)["running_mean"])


def test_what_does_not_get_smaller_is_exact(tmp_path: Path) -> None:
    one = {"w": stores.weights(0, (20,))}
    found = kinds(tmp_path, one, {"w": one["w"] * np.float32(1.0000001)}, Rule(refinement=23))
    assert not found["w"]["lossy"]


@pytest.mark.parametrize("refinement", [0, 1, 2, 5, 10])
def test_refinement_bits_bring_the_error_down(tmp_path: Path, refinement: int) -> None:
    tree = {"w": stores.weights(0, (5000,))}
    rule = Rule(levels=7, refinement=refinement)
    error = kinds(tmp_path, tree, moved(tree), rule)["w"]["error"]
    assert error < [0.3, 0.15, 0.09, 0.03, 0.03][[0, 1, 2, 5, 10].index(refinement)]


def test_another_policy_applies_from_the_next_snapshot(tmp_path: Path) -> None:
    tree = {"w": stores.weights(0, (50, 40))}
    with CheckpointManager(tmp_path, "lossy") as manager:
        manager.save(0, tree)
        manager.save(1, moved(tree))
    with CheckpointManager(tmp_path, "exact") as manager:
        manager.save(2, moved(tree, 0.02))
        assert manager.stats(2).kind == "delta"
        assert not manager.stats(2).tensors["w"].lossy
        assert manager.stats(2).residual_bytes == 0
        assert manager.stats(1).tensors["w"].lossy


def tied(names: str, seed: int = 0) -> stores.State:
    weight = stores.weights(seed) if seed == 0 else stores.weights(0) + stores.weights(1) * 0.01
    return dict.fromkeys(names.split(), weight)


@pytest.mark.parametrize("names", ["emb head", "head emb"])
def test_a_tied_tensor_is_exact_if_any_of_its_names_is(tmp_path: Path, names: str) -> None:
    rules = [Rule("head", mode="exact"), Rule("*")]
    record = kinds(tmp_path, tied(names), tied(names, 1), rules)[names.split()[0]]
    assert not record["lossy"]


def test_a_tied_tensor_of_which_a_name_has_no_rule_is_exact(tmp_path: Path) -> None:
    assert not kinds(tmp_path, tied("a b"), tied("a b", 1), [Rule("a")])["a"]["lossy"]


def test_a_tied_tensor_named_like_statistics_is_exact(tmp_path: Path) -> None:
    names = "w bn.running_var"
    assert not kinds(tmp_path / "a", tied(names), tied(names, 1))["w"]["lossy"]
    assert kinds(tmp_path / "b", tied(names), tied(names, 1), Rule("*", mode="lossy"))["w"]["lossy"]


@pytest.mark.filterwarnings("error")
def test_a_rule_for_another_name_of_a_tied_tensor_has_matched(tmp_path: Path) -> None:
    rules = [Rule("a", levels=2), Rule("b", levels=7)]
    record = kinds(tmp_path, tied("a b"), tied("a b", 1), rules)["a"]
    assert record["lossy"]
    assert len(record["representatives"]) <= 4


def test_a_pattern_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(ckptz.PolicyError, match="not valid Unicode"):
        Rule("\udcff*")
