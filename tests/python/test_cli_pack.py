"""`ckptz pack`: kinds of files, steps, order, stores that go on."""

from __future__ import annotations

import shutil
from pathlib import Path

import ckptz
import numpy as np
import pytest
from ckptz.outputs import write_safetensors
from cli_tools import State, fails, load, pack, process, run, same, walk, write_run
from inputs_files import DATA, torch_zip


def restored(store: Path, step: int | None = None) -> State:
    with ckptz.CheckpointManager(store, readonly=True) as manager:
        state = manager.restore(step, as_numpy=True)
    assert isinstance(state, dict)
    return state


def steps_of(store: Path) -> list[int]:
    with ckptz.CheckpointManager(store, readonly=True) as manager:
        return manager.all_steps()


def test_numeric_order_of_a_folder(tmp_path: Path) -> None:
    store = pack(tmp_path, [9, 10, 99, 100])
    assert steps_of(store) == [9, 10, 99, 100]
    assert same(restored(store), load(tmp_path / "run" / "100.safetensors"))


def test_named_files_are_sorted_by_step(tmp_path: Path) -> None:
    paths = write_run(tmp_path / "run", [9, 10, 99, 100])
    ran = run("pack", *sorted(paths, key=str), "-o", tmp_path / "store", "--json")
    assert [row["step"] for row in ran.document["packed"]] == [9, 10, 99, 100]
    assert [row["kind"] for row in ran.document["packed"]] == ["full", "delta", "delta", "delta"]


@pytest.mark.parametrize("kind", ["safetensors", "npz", "npz-compressed"])
def test_kinds_of_files(tmp_path: Path, kind: str) -> None:
    states = walk(3)
    for step, state in enumerate(states):
        if kind == "safetensors":
            write_safetensors(tmp_path / f"{step}.safetensors", state, {})
        elif kind == "npz":
            np.savez(tmp_path / f"{step}.npz", **state)
        else:
            np.savez_compressed(tmp_path / f"{step}.npz", **state)
    assert run("pack", tmp_path, "-o", tmp_path / "store").code == 0
    assert same(restored(tmp_path / "store"), states[-1])


def test_npy_is_one_array(tmp_path: Path) -> None:
    arrays = [state["w"] for state in walk(2)]
    paths = [tmp_path / f"{step}.npy" for step in (1, 2)]
    for path, array in zip(paths, arrays, strict=True):
        np.save(path, array)
    assert run("pack", *paths, "-o", tmp_path / "store").code == 0
    with ckptz.CheckpointManager(tmp_path / "store", readonly=True) as manager:
        assert np.array_equal(manager.restore(), arrays[1])


@pytest.mark.parametrize("name", ["training.pt", "training_legacy.pt"])
def test_torch_files_without_torch(tmp_path: Path, name: str) -> None:
    for step in (5, 10):
        shutil.copy(DATA / name, tmp_path / f"epoch{step}.pth")
    assert run("pack", tmp_path, "-o", tmp_path / "store").code == 0
    assert steps_of(tmp_path / "store") == [5, 10]
    against = run("verify", tmp_path / "store", "--against", tmp_path, "--json")
    assert against.code == 0, against
    # The second state is the first, so it costs next to nothing.
    rows = run("ls", tmp_path / "store", "--json").document["steps"]
    assert rows[1]["bytes"] < 1200


def test_a_pickle_with_other_globals_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "1.pt"
    path.write_bytes(torch_zip(b"\x80\x02cos\nsystem\n."))
    line = fails(3, "pack", path, "-o", tmp_path / "store")
    assert str(path) in line
    assert "os" in line
    assert not (tmp_path / "store").exists()


def test_positions_where_names_have_no_number(tmp_path: Path) -> None:
    paths = []
    for name, state in zip(["b", "a", "v1_2"], walk(3), strict=True):
        paths.append(tmp_path / f"{name}.safetensors")
        write_safetensors(paths[-1], state, {})
    ran = run("pack", *paths, "-o", tmp_path / "store")
    assert ran.code == 0
    assert ran.err.count("\n") == 1
    assert "positions, 0 to 2: b.safetensors" in ran.err
    assert steps_of(tmp_path / "store") == [0, 1, 2]
    assert same(restored(tmp_path / "store", 0), load(paths[0]))


@pytest.mark.parametrize(
    ("said", "found"), [("10,20,4000", [10, 20, 4000]), ("7:500", [7, 507, 1007])]
)
def test_steps_are_said(tmp_path: Path, said: str, found: list[int]) -> None:
    paths = write_run(tmp_path / "run", [1, 2, 3])
    assert run("pack", *paths, "-o", tmp_path / "store", "--steps", said).code == 0
    assert steps_of(tmp_path / "store") == found


@pytest.mark.parametrize("said", ["1,2", "1,2,x", "", "5", "1,2,-3", "2:", "٣,4,5"])
def test_steps_that_cannot_be(tmp_path: Path, said: str) -> None:
    paths = write_run(tmp_path / "run", [1, 2, 3])
    assert "--steps" in fails(2, "pack", *paths, "-o", tmp_path / "store", "--steps", said)


def test_steps_must_rise(tmp_path: Path) -> None:
    paths = write_run(tmp_path / "run", [1, 2])
    line = fails(2, "pack", *paths, "-o", tmp_path / "store", "--steps", "5,4")
    assert "steps must rise" in line
    assert all(str(path) in line for path in paths)
    assert "2^63" in fails(2, "pack", *paths, "-o", tmp_path / "s", "--steps", f"0:{2**63}")


def test_duplicates_name_both_files(tmp_path: Path) -> None:
    paths = write_run(tmp_path / "run", [1, 2])
    other = tmp_path / "0002.safetensors"
    shutil.copy(paths[1], other)
    line = fails(2, "pack", *paths, other, "-o", tmp_path / "store")
    assert str(paths[1]) in line
    assert str(other) in line
    assert "step 2" in line
    assert not (tmp_path / "store").exists()


def test_parts_of_one_checkpoint_are_not_steps(tmp_path: Path) -> None:
    for part, state in enumerate(walk(2), 1):
        write_safetensors(tmp_path / f"model-0000{part}-of-00002.safetensors", state, {})
    assert "parts" in fails(2, "pack", tmp_path, "-o", tmp_path / "store")
    assert run("pack", tmp_path, "-o", tmp_path / "store", "--steps", "1,2").code == 0


def test_a_store_goes_on(tmp_path: Path) -> None:
    store = pack(tmp_path, [10, 20])
    paths = write_run(tmp_path / "run", [10, 20, 30, 40])
    line = fails(2, "pack", *paths, "-o", store)
    assert "step 10 is in" in line
    assert "--skip-existing" in line
    assert steps_of(store) == [10, 20]
    ran = run("pack", *paths, "-o", store, "--skip-existing", "--json")
    assert ran.code == 0
    assert [row["step"] for row in ran.document["skipped"]] == [10, 20]
    assert [row["step"] for row in ran.document["packed"]] == [30, 40]
    assert steps_of(store) == [10, 20, 30, 40]
    again = run("pack", *paths, "-o", store, "--skip-existing")
    assert (again.code, again.out) == (0, f"{store}: nothing new to pack\n")
    assert "skipped 4 steps" in again.err


def test_a_step_below_the_newest(tmp_path: Path) -> None:
    store = pack(tmp_path, [10, 20])
    paths = write_run(tmp_path / "more", [15])
    assert "not above the newest" in fails(2, "pack", *paths, "-o", store)


@pytest.mark.parametrize("policy", ["lossy", "lossy:2", "exact", "paper:3"])
def test_policies(tmp_path: Path, policy: str) -> None:
    store = pack(tmp_path, [1, 2, 3], "--policy", policy)
    assert run("info", store, "--json").document["policy"] == policy
    with ckptz.CheckpointManager(store, readonly=True) as manager:
        assert manager.policy == ckptz.Policy.of(policy)
        assert manager.stats(2).exact == (policy == "exact")


def test_a_store_keeps_its_policy(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2], "--policy", "exact")
    paths = write_run(tmp_path / "more", [3])
    assert run("pack", *paths, "-o", store).code == 0
    assert run("info", store, "--json").document["policy"] == "exact"


def test_an_unknown_policy(tmp_path: Path) -> None:
    paths = write_run(tmp_path / "run", [1])
    assert "'lossy:LEVELS'" in fails(
        2, "pack", *paths, "-o", tmp_path / "s", "--policy", "lossless"
    )


def test_exact_and_full_every(tmp_path: Path) -> None:
    store = pack(tmp_path, list(range(1, 8)), "--exact", "none", "--full-every", "3")
    rows = run("ls", store, "--json").document["steps"]
    assert [row["kind"] for row in rows] == ["full", "delta", "delta"] * 2 + ["full"]
    assert all(row["residual_bytes"] == 0 for row in rows)
    info = run("info", store, "--json").document
    assert (info["full_every"], info["restore_files"]) == (3, 3)


def test_text_beside_the_tensors_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "1.safetensors"
    write_safetensors(path, walk(1)[0], {"format": "pt", "note": "é\n"})
    assert run("pack", path, "-o", tmp_path / "store").code == 0
    assert restored(tmp_path / "store").keys() == {"w", "v", "step"}
    out = tmp_path / "out.safetensors"
    assert run("unpack", tmp_path / "store", "-o", out).code == 0
    assert out.read_bytes() == path.read_bytes()


def test_a_failure_halfway_keeps_what_was_packed(tmp_path: Path) -> None:
    paths = write_run(tmp_path / "run", [1, 2, 3])
    paths[2].write_bytes(paths[2].read_bytes()[:-100])
    ran = run("pack", *paths, "-o", tmp_path / "store")
    assert ran.code == 3
    assert "(2 of 3 files are packed; go on with --skip-existing)" in ran.err
    assert run("verify", tmp_path / "store").code == 0
    write_run(tmp_path / "run", [1, 2, 3])
    assert run("pack", *paths, "-o", tmp_path / "store", "--skip-existing").code == 0
    assert steps_of(tmp_path / "store") == [1, 2, 3]


def test_another_writer(tmp_path: Path) -> None:
    store = pack(tmp_path, [1])
    paths = write_run(tmp_path / "more", [2, 3])
    with ckptz.CheckpointManager(store) as manager:
        manager.save(2, walk(1)[0])
        ran = process("pack", paths[1], "-o", store)
    assert ran.returncode == 3
    assert ran.stderr.startswith(f"ckptz: {store}: another writer holds this store; close it")
    assert ran.stderr.count("\n") == 1


def test_input_that_is_not_there(tmp_path: Path) -> None:
    line = fails(3, "pack", tmp_path / "none.npz", "-o", tmp_path / "store")
    assert line == f"ckptz: {tmp_path / 'none.npz'}: No such file or directory"
    (tmp_path / "empty").mkdir()
    assert "no checkpoint" in fails(3, "pack", tmp_path / "empty", "-o", tmp_path / "store")


def test_a_store_that_cannot_be_made(tmp_path: Path) -> None:
    paths = write_run(tmp_path / "run", [1])
    (tmp_path / "file").write_text("x")
    line = fails(3, "pack", *paths, "-o", tmp_path / "file")
    assert str(tmp_path / "file") in line
