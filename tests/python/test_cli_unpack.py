"""`ckptz unpack`: a step into a file that other programs read."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import ckptz
import ml_dtypes
import numpy as np
import pytest
from cli_tools import fails, flip, load, pack, run, same, walk


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_the_newest_is_exact(tmp_path: Path, suffix: str) -> None:
    store = pack(tmp_path, [1, 2, 3])
    out = tmp_path / f"out.{suffix}"
    ran = run("unpack", store, "-o", out)
    assert ran.code == 0
    assert ran.out.startswith(f"{out}: step 3, 3 tensors, ")
    assert same(load(out), load(tmp_path / "run" / "3.safetensors"))


def test_an_older_step(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2, 3])
    out = tmp_path / "out.npz"
    assert run("unpack", store, "--step", 2, "-o", out, "--json").document["step"] == 2
    with ckptz.CheckpointManager(store, readonly=True) as manager:
        assert same(load(out), manager.restore(2))


def test_keys(tmp_path: Path) -> None:
    state = {"model": {"a": np.ones(20), "b/c": np.zeros(3)}, "lr": 0.1, "opt": [np.ones(2)]}
    path = tmp_path / "one.ckptz"
    ckptz.save_file(state, path)
    out = tmp_path / "out.safetensors"
    ran = run("unpack", path, "--keys", "model/*", "--keys", "none", "-o", out)
    assert ran.code == 0, ran
    assert load(out).keys() == {"model/a", "model/b~1c"}
    assert ran.err == ""
    assert "matches none" in fails(2, "unpack", path, "--keys", "none", "-o", out)


def test_flat_states_keep_their_names(tmp_path: Path) -> None:
    state = {"layer/0/w": np.ones(4), "7": np.zeros(2), "a~b": np.ones(1)}
    ckptz.save_file(state, tmp_path / "one.ckptz")
    out = tmp_path / "out.npz"
    assert run("unpack", tmp_path / "one.ckptz", "-o", out).code == 0
    assert same(load(out), state)
    assert run("unpack", tmp_path / "one.ckptz", "--keys", "layer/*", "-o", out).code == 0
    assert load(out).keys() == {"layer/0/w"}


def test_nested_states_are_named_by_key_path(tmp_path: Path) -> None:
    state = OrderedDict(a={"b": np.ones(3)}, c=(np.ones(2), np.zeros((1, 5))))
    ckptz.save_file(state, tmp_path / "one.ckptz")
    out = tmp_path / "out.safetensors"
    assert run("unpack", tmp_path / "one.ckptz", "-o", out).code == 0
    assert load(out).keys() == {"a/b", "c/0", "c/1"}
    assert load(out)["c/1"].shape == (1, 5)


def test_one_array(tmp_path: Path) -> None:
    ckptz.save_file(np.arange(6), tmp_path / "one.ckptz")
    assert run("unpack", tmp_path / "one.ckptz", "-o", tmp_path / "out.npz").code == 0
    with np.load(tmp_path / "out.npz") as file:
        assert np.array_equal(file["arr_0"], np.arange(6))


def test_plain_values_are_left_out(tmp_path: Path) -> None:
    state = {"w": np.ones(3), "lr": 0.1, "epoch": 3}
    ckptz.save_file(state, tmp_path / "one.ckptz")
    ran = run("unpack", tmp_path / "one.ckptz", "-o", tmp_path / "out.npz")
    assert ran.code == 0
    assert ran.err == "ckptz: note: left out 2 plain values: lr, epoch\n"
    again = run("unpack", tmp_path / "one.ckptz", "-o", tmp_path / "out.npz", "--json")
    assert again.document["left_out"] == ["lr", "epoch"]


def test_dtypes_that_numpy_lacks(tmp_path: Path) -> None:
    state = {"w": np.arange(8).astype(ml_dtypes.bfloat16), "q": np.ones(3, ml_dtypes.float8_e4m3fn)}
    ckptz.save_file(state, tmp_path / "one.ckptz")
    for name in ("out.npz", "out.safetensors"):
        assert run("unpack", tmp_path / "one.ckptz", "-o", tmp_path / name).code == 0
        assert same(load(tmp_path / name), state)


def test_a_dtype_that_the_file_cannot_hold(tmp_path: Path) -> None:
    ckptz.save_file({"z": np.ones(3, np.complex128)}, tmp_path / "one.ckptz")
    out = tmp_path / "out.safetensors"
    assert "write .npz instead" in fails(3, "unpack", tmp_path / "one.ckptz", "-o", out)
    assert not out.exists()


def test_a_suffix_that_is_not_known(tmp_path: Path) -> None:
    store = pack(tmp_path, [1])
    assert ".safetensors or .npz" in fails(2, "unpack", store, "-o", tmp_path / "out.pt")


def test_a_step_that_is_not_there(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2])
    line = fails(3, "unpack", store, "--step", 7, "-o", tmp_path / "out.npz")
    assert "step 7" in line
    assert "1, 2" in line


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    store = pack(tmp_path, [1])
    line = fails(3, "unpack", store, "-o", tmp_path / "none" / "out.npz")
    assert "No such file or directory" in line


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_an_error_names_the_file_that_it_is_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    store = pack(tmp_path, [1], "--exact", "none")
    out = tmp_path / f"out.{suffix}"
    (snapshot,) = store.glob("*.ckptz")
    read = os.preadv

    def bad_sector(descriptor: int, views: Any, at: int) -> int:
        if list(tmp_path.glob(".new-*")):  # the output has been begun
            raise OSError(errno.EIO, "Input/output error")
        return read(descriptor, views, at)

    def full_disk(descriptor: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", bad_sector)
        line = fails(3, "unpack", store, "-o", out)
        assert line == f"ckptz: {snapshot}: Input/output error"
        patch.setattr(os, "preadv", read)
        patch.setattr(os, "write", full_disk)
        assert fails(3, "unpack", store, "-o", out) == f"ckptz: {out}: No space left on device"
    assert not list(tmp_path.glob("*out*"))


def test_a_damaged_newest_is_passed_over(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2, 3], "--exact", "none")
    newest = max(store.glob("*.ckptz"))
    flip(newest, 40)
    out = tmp_path / "out.npz"
    ran = run("unpack", store, "-o", out)
    assert ran.code == 0
    assert ran.out.startswith(f"{out}: step 2, ")
    assert ran.err.startswith("ckptz: warning: taking step 2: ")
    assert ran.err.count("\n") == 1
    assert newest.name in ran.err
    assert newest.name in fails(3, "unpack", store, "--step", 3, "-o", out)


def test_a_damaged_residual_is_warned_of(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2, 3])
    flip(next(store.glob("*.residual.ckptz")), 40)
    out = tmp_path / "out.npz"
    ran = run("unpack", store, "-o", out)
    assert ran.code == 0
    assert "residual of step 3 is lost" in ran.err
    with ckptz.CheckpointManager(store, readonly=True) as manager:
        assert same(load(out), manager.restore(3, residual=False))


def test_a_file_of_a_store_alone(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2])
    full, delta, residual = sorted(store.glob("*.ckptz"), key=lambda path: (len(path.name), path))
    assert run("unpack", full, "-o", tmp_path / "out.npz").code == 0
    assert same(load(tmp_path / "out.npz"), walk(2)[0])
    for path in (delta, residual):
        assert "name the folder" in fails(3, "unpack", path, "-o", tmp_path / "out.npz")


def test_a_link_to_a_file(tmp_path: Path) -> None:
    ckptz.save_file({"w": np.ones(3)}, tmp_path / "one")
    (tmp_path / "link.ckptz").symlink_to(tmp_path / "one")
    assert run("unpack", tmp_path / "link.ckptz", "-o", tmp_path / "out.npz").code == 0
