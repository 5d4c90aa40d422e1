"""`ckptz verify`: damage, and restored steps against the files that were packed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
from ckptz.outputs import write_npz, write_safetensors
from cli_tools import fails, flip, load, pack, run, walk, write_run


def test_a_good_store(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2, 3])
    ran = run("verify", store)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{store}: 3 snapshots good\n"
    document = run("verify", store, "--json").document
    assert document["ok"]
    assert document["steps"] == [1, 2, 3]
    assert document["problems"] == []


@pytest.mark.parametrize("kind", ["full", "delta", "residual"])
@pytest.mark.parametrize("where", ["payload", "metadata", "cut", "empty"])
def test_damage(tmp_path: Path, kind: str, where: str) -> None:
    store = pack(tmp_path, [1, 2, 3])
    files = sorted(store.glob("*.ckptz"))
    residual = next(path for path in files if "residual" in path.name)
    path = {"full": files[0], "delta": files[1], "residual": residual}[kind]
    if where in ("payload", "metadata"):
        flip(path, 30 if where == "payload" else -40)
    else:
        path.write_bytes(path.read_bytes()[: 0 if where == "empty" else -7])
    ran = run("verify", store)
    assert ran.code == 1
    assert ran.err == ""
    assert path.name in ran.out
    document = run("verify", store, "--json").document
    assert not document["ok"]
    assert document["problems"]
    lost = {"full": 3, "delta": 2, "residual": 0}[kind]
    assert len(document["steps"]) == 3 - lost


def test_a_missing_parent(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2, 3])
    sorted(store.glob("*.ckptz"))[1].unlink()
    ran = run("verify", store, "--json")
    assert ran.code == 1
    assert ran.document["steps"] == [1]


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "one.ckptz"
    ckptz.save_file(walk(1)[0], path)
    assert run("verify", path).code == 0
    flip(path, 30)
    ran = run("verify", path, "--json")
    assert ran.code == 1
    assert {problem["file"] for problem in ran.document["problems"]} == {str(path)}
    path.write_bytes(b"something else")
    assert run("verify", path).code == 1


def test_a_delta_alone(tmp_path: Path) -> None:
    delta = sorted(pack(tmp_path, [1, 2], "--exact", "none").glob("*.ckptz"))[1]
    assert "name the folder" in fails(3, "verify", delta)


def test_against_the_files(tmp_path: Path) -> None:
    store = pack(tmp_path, [9, 10, 11])
    ran = run("verify", store, "--against", tmp_path / "run")
    assert ran.code == 0, ran
    assert ran.out.splitlines()[-1].endswith(
        "3 snapshots good; 3 files compared, none of which differs where it must not"
    )
    first, second, third = run("verify", store, "--against", tmp_path / "run", "--json").document[
        "compared"
    ]
    assert [one["step"] for one in (first, second, third)] == [9, 10, 11]
    for exact in (first, third):
        assert all(
            row["exact"] and row["error"] == row["largest_error"] == 0 for row in exact["tensors"]
        )
    rows = {row["path"]: row for row in second["tensors"]}
    assert rows["step"]["exact"]
    assert not rows["w"]["exact"]


def test_the_error_of_a_record(tmp_path: Path) -> None:
    """By its definition, and as the writer measured it."""
    store = pack(tmp_path, [1, 2, 3], "--exact", "none")
    compared = run("verify", store, "--against", tmp_path / "run", "--json").document["compared"]
    with ckptz.CheckpointManager(store, readonly=True) as manager:
        for one, before in zip(compared[1:], [1, 2], strict=True):
            restored, base = manager.restore(one["step"]), manager.restore(before)
            saved = load(Path(one["file"]))
            for row in one["tensors"]:
                r, u, p = (np.float64(s[row["path"]]) for s in (restored, saved, base))
                assert row["largest_error"] == np.abs(r - u).max()
                if not row["exact"]:
                    error = np.linalg.norm(r - u) / np.linalg.norm(u - p)
                    assert row["error"] == pytest.approx(error)
                    recorded = manager.stats(one["step"]).tensors[row["path"]].error
                    assert row["error"] == pytest.approx(recorded, rel=0.01)


def test_against_some_of_the_files(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2, 3])
    ran = run("verify", store, "--against", tmp_path / "run" / "2.safetensors")
    assert ran.code == 0
    assert "2 steps without a file to compare with" in ran.out
    document = run(
        "verify", store, "--against", tmp_path / "run" / "2.safetensors", "--json"
    ).document
    assert document["not_compared"] == [1, 3]


def test_against_a_file_whose_step_is_not_there(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2])
    write_run(tmp_path / "run", [1, 2, 3])
    ran = run("verify", store, "--against", tmp_path / "run")
    assert ran.code == 1
    assert "DIFFERS: step 3 cannot be restored, or was never saved" in ran.out


def changed(tmp_path: Path, step: int, change: dict[str, Any], policy: str = "lossy") -> Path:
    """Pack two steps, then change a file; return the store."""
    store = pack(tmp_path, [1, 2], "--policy", policy)
    path = tmp_path / "run" / f"{step}.safetensors"
    state: dict[str, Any] = {key: np.array(value) for key, value in load(path).items()}
    state.update(change)
    write_safetensors(path, {key: value for key, value in state.items() if value is not None}, {})
    return store


def differs(tmp_path: Path, store: Path) -> str:
    ran = run("verify", store, "--against", tmp_path / "run")
    assert ran.code == 1
    (line,) = [line for line in ran.out.splitlines() if "DIFFERS" in line]
    return line


def test_an_exact_tensor_that_differs(tmp_path: Path) -> None:
    store = changed(tmp_path, 2, {"step": np.array([7], np.int64)})
    assert "1 of 1 entries differ" in differs(tmp_path, store)


def test_any_tensor_of_the_newest_is_exact(tmp_path: Path) -> None:
    weight = walk(2)[1]["w"]
    weight[3, 5] = np.nextafter(weight[3, 5], np.float32(9))
    store = changed(tmp_path, 2, {"w": weight})
    assert "1 of 4000 entries differ" in differs(tmp_path, store)


def test_negative_zero_is_a_difference_of_an_exact_tensor(tmp_path: Path) -> None:
    paths = write_run(tmp_path / "run", [1])
    state = load(paths[0]) | {"z": np.zeros(50, np.float32)}
    write_safetensors(paths[0], state, {})
    assert run("pack", *paths, "-o", tmp_path / "store").code == 0
    write_safetensors(paths[0], state | {"z": -state["z"]}, {})
    line = differs(tmp_path, tmp_path / "store")
    assert "50 of 50" in line
    assert line.split()[:4] == ["z", "yes", "0", "0"]


def test_a_lossy_tensor_may_differ(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2, 3])
    path = tmp_path / "run" / "2.safetensors"
    state = load(path) | {"w": load(path)["w"] + np.float32(0.5)}
    write_safetensors(path, state, {})
    ran = run("verify", store, "--against", tmp_path / "run", "--json")
    assert ran.code == 0
    rows = {row["path"]: row for row in ran.document["compared"][1]["tensors"]}
    assert rows["w"]["largest_error"] > 0.4


def test_not_finite_entries_of_a_lossy_tensor_may_not(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2, 3])
    path = tmp_path / "run" / "2.safetensors"
    weight = load(path)["w"].copy()
    weight[0, 0] = np.nan
    write_safetensors(path, load(path) | {"w": weight}, {})
    assert "1 entries that are not finite differ" in differs(tmp_path, store)


def test_missing_and_added_tensors(tmp_path: Path) -> None:
    store = changed(tmp_path, 2, {"v": None})
    assert "is not in the file" in differs(tmp_path, store)
    store = changed(tmp_path / "b", 2, {"more": np.ones(3)})
    assert "is not in the store" in differs(tmp_path / "b", store)


def test_another_shape_or_dtype(tmp_path: Path) -> None:
    store = changed(tmp_path, 1, {"v": np.ones((40, 100), np.float32)})
    assert "is float32 [100, 40], in the file float32 [40, 100]" in differs(tmp_path, store)


def test_plain_values(tmp_path: Path) -> None:
    path = tmp_path / "one.ckptz"
    ckptz.save_file({"w": np.ones(3)}, path)
    write_safetensors(tmp_path / "w.safetensors", {"w": np.ones(3)}, {"format": "pt"})
    ran = run("verify", path, "--against", tmp_path / "w.safetensors")
    assert ran.code == 1
    assert "plain value ~4/format: not in the store" in ran.out


def test_one_file_against_one(tmp_path: Path) -> None:
    path = tmp_path / "one.ckptz"
    ckptz.save_file(walk(1)[0], path)
    paths = write_run(tmp_path / "run", [500])
    assert run("verify", path, "--against", *paths).code == 0
    shutil.copy(paths[0], tmp_path / "run" / "501.safetensors")
    assert "--against needs one too, not 2" in fails(
        2, "verify", path, "--against", tmp_path / "run"
    )


def test_against_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    store = pack(tmp_path, [1])
    path = tmp_path / "run" / "1.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert str(path) in fails(3, "verify", store, "--against", path)


def test_damage_and_comparison_together(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2, 3])
    flip(sorted(store.glob("*.ckptz"))[1], 30)
    ran = run("verify", store, "--against", tmp_path / "run", "--json")
    assert ran.code == 1
    assert [one["ok"] for one in ran.document["compared"]] == [True, False, False]


def test_every_dtype_compares(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "c": np.array([1 + 2j, np.nan], np.complex64),
        "b": np.array([True, False]),
        "i": np.array([-1, 2**62]),
        "h": np.arange(30, dtype=np.float16),
        "s": np.array(3.0),
    }
    texts = {"t": np.array(["a", "bc"]), "d": np.array(["2020"], "M8[s]")}
    write_npz(tmp_path / "1.npz", arrays | texts)
    assert run("pack", tmp_path / "1.npz", "-o", tmp_path / "store").code == 0
    ran = run("verify", tmp_path / "store", "--against", tmp_path / "1.npz", "--json")
    assert ran.code == 0
    rows = {row["path"]: row for row in ran.document["compared"][0]["tensors"]}
    assert rows["t"]["largest_error"] is rows["d"]["largest_error"] is None
    assert all(rows[key]["largest_error"] == 0 for key in arrays)
