"""A state that another thread changes while it is saved: what is saved restores, or nothing is."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
from ckptz import Rule, StateChangedError, codec

POLICY = ckptz.Policy(
    [
        Rule("exact/*", mode="exact", base="unpredicted"),
        Rule("paper/*", mode="paper"),
        Rule("*", base="unpredicted"),
    ]
)


def arrays(rng: np.random.Generator, scale: float) -> dict[str, dict[str, Any]]:
    def normal(size: int, dtype: str = "f4") -> Any:
        return (rng.normal(size=size) * scale).astype(dtype)

    return {
        "exact": {"f4": normal(300_000), "f2": normal(150_000, "f2"), "f8": normal(100_000, "f8")},
        "paper": {"f4": normal(200_000)},
        "lossy": {"large": normal(300_000), "small": normal(20_000), "square": normal(90_000) ** 2},
        "integers": {"i8": rng.integers(-9, 9, 100_000)},
    }


class Changer(threading.Thread):
    """Writes other contents into the arrays of a state, until it is stopped."""

    def __init__(self, state: dict[str, dict[str, Any]]) -> None:
        super().__init__(daemon=True)
        rng = np.random.default_rng(1)
        self.state = state
        self.contents = [arrays(rng, scale) for scale in (0.01, 1.0, 0.0)]
        self.contents[1]["paper"]["f4"][::1000] = np.nan
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set():
            for content in self.contents:
                for part, tensors in content.items():
                    for name, array in tensors.items():
                        self.state[part][name][:] = array


@pytest.mark.filterwarnings("ignore:step .* not finite")
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_saved_restores(tmp_path: Path, threads: int) -> None:
    state = arrays(np.random.default_rng(0), 0.1)
    saved, refused = [], []
    manager = ckptz.CheckpointManager(tmp_path, POLICY, exact="none", threads=threads)
    manager.save(0, state)
    changer = Changer(state)
    changer.start()
    try:
        for step in range(1, 25):
            try:
                manager.save(step, state)
                saved.append(step)
            except StateChangedError as error:
                refused.append(str(error))
    finally:
        changer.stopped.set()
        changer.join()
    assert all("changed while it was being encoded" in what for what in refused)
    manager.save(99, state)
    manager.close()
    reader = ckptz.CheckpointManager(tmp_path, readonly=True)
    assert reader.all_steps() == [0, *saved, 99]
    for step in reader:
        reader.restore(step, as_numpy=True)
    assert reader.verify().ok


@pytest.mark.parametrize("mode", ["exact", "lossy", "paper"])
def test_an_array_that_changes(mode: str) -> None:
    state = {"all": {"a": np.zeros(50_000, "f4")}}
    rng = np.random.default_rng(2)
    changer = Changer(state)
    changer.contents = [
        {"all": {"a": (rng.normal(size=50_000) * scale).astype("f4")}} for scale in (0.01, 1.0, 0.0)
    ]
    changer.start()
    try:
        for _ in range(400):
            base = np.zeros(50_000, "f4")
            before = base.copy()
            try:
                data = codec.encode(state["all"]["a"], base, Rule(mode=mode), threads=1)  # type: ignore[arg-type]
            except StateChangedError:
                continue
            assert codec.decode(data, before).tobytes() == base.tobytes()
    finally:
        changer.stopped.set()
        changer.join()


@pytest.mark.parametrize("exact", ["none", "latest"])
@pytest.mark.parametrize("dtype", ["i8", "f4"])
def test_what_a_new_tensor_is_a_link_to_changes(tmp_path: Path, exact: Any, dtype: str) -> None:
    rng = np.random.default_rng(3)
    first, big = np.arange(1000).astype(dtype), rng.integers(0, 1 << 62, 2_000_000)
    manager = ckptz.CheckpointManager(tmp_path, "exact", exact=exact)
    manager.save(1, {"big": big, "z": first})
    first += np.asarray(1, dtype)
    state = {"big": big[::-1].copy(), "z": first, "zz": first.copy()}

    def change(_: int) -> None:
        first[5] = 7

    with pytest.raises(StateChangedError):
        manager.save(2, state, progress=change)
    state["zz"] = first.copy()
    manager.save(2, state)
    found = ckptz.CheckpointManager(tmp_path, readonly=True).restore(2)
    assert found["z"].tobytes() == found["zz"].tobytes() == first.tobytes()


class Trainer(threading.Thread):
    """Writes the next generation into one array after another, and rests after the last."""

    def __init__(self, state: dict[str, Any], patterns: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.state, self.patterns = state, patterns
        self.stopped = threading.Event()

    def run(self) -> None:
        for generation in range(2, 1 << 20):
            for name, array in self.state.items():
                np.multiply(self.patterns[name], generation, out=array)
            if self.stopped.wait(0.02):
                return


def is_of_one_moment(found: dict[str, Any], patterns: dict[str, Any]) -> bool:
    """Whether arrays are of one generation up to one place, and of the one before from there on."""
    largest = max(round(float(found[name][0] / patterns[name][0])) for name in found)
    of_last = [found[name] == patterns[name] * np.float32(largest) for name in found]
    of_former = [found[name] == patterns[name] * np.float32(largest - 1) for name in found]
    whole = np.concatenate(of_last)
    changes = np.count_nonzero(whole[1:] != whole[:-1])
    known = np.concatenate(of_last) | np.concatenate(of_former)
    return bool(known.all() and changes <= 1 and (whole[0] or not whole.any()))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("policy", ["lossy", "exact"])
def test_what_is_saved_is_of_one_moment(tmp_path: Path, policy: Any, threads: int) -> None:
    rng = np.random.default_rng(4)
    patterns = {f"w{k}": rng.normal(size=60_000).astype("f4") for k in range(8)}
    state = {name: pattern.copy() for name, pattern in patterns.items()}
    # Deltas are watched, full snapshots are not: none but the first.
    manager = ckptz.CheckpointManager(tmp_path, policy, threads=threads, full_every=0)
    manager.save(0, state)
    trainer = Trainer(state, patterns)
    trainer.start()
    saved = refused = 0
    try:
        for step in range(1, 60):
            try:
                manager.save(step, state)
            except StateChangedError:
                refused += 1
                continue
            saved += 1
            assert is_of_one_moment(manager.restore(), patterns)
    finally:
        trainer.stopped.set()
        trainer.join()
    manager.save(99, state)
    assert is_of_one_moment(manager.restore(), patterns)
    assert saved + refused == 59
