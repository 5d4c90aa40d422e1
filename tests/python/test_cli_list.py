"""`ckptz ls` and `ckptz info`: what is in a store or a file."""

from __future__ import annotations

import time
from pathlib import Path

import ckptz
import numpy as np
import pytest
from ckptz.cli.report import count, error_text, ratio_text, size, table
from cli_tools import fails, flip, pack, run, walk


def test_ls_has_a_line_a_step(tmp_path: Path) -> None:
    store = pack(tmp_path, [9, 10, 99, 100])
    head, *lines = run("ls", store).out.splitlines()
    assert head.split()[:4] == ["step", "kind", "bytes", "residual"]
    assert [line.split()[0] for line in lines] == ["9", "10", "99", "100"]
    assert [line.split()[1] for line in lines] == ["full", "delta", "delta", "delta"]
    # Columns are aligned: what stands flush left starts below its head.
    assert {line.index(word) for line in lines for word in ("full", "delta") if word in line} == {
        head.index("kind")
    }


def test_ls_json_agrees_with_the_library(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2, 3])
    document = run("ls", store, "--json").document
    assert document["source"] == str(store)
    with ckptz.CheckpointManager(store, readonly=True) as manager:
        for row, step in zip(document["steps"], manager.all_steps(), strict=True):
            stats = manager.stats(step)
            for name in ("step", "kind", "bytes", "residual_bytes", "error", "exact", "finite"):
                assert row[name] == getattr(stats, name)
            assert row["ratio"] == pytest.approx(stats.ratio)
            assert (row["restore_files"], row["restore_bytes"]) == (
                stats.restore_files,
                stats.restore_bytes,
            )
    assert [row["exact"] for row in document["steps"]] == [True, False, True]


@pytest.mark.parametrize("created", [2**64 - 1, 253_402_300_799_999])
def test_ls_of_a_step_of_no_calendar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, created: int
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: created * 10**6)
    monkeypatch.setenv("TZ", "UTC-9")
    time.tzset()
    store = pack(tmp_path, [1])
    assert run("ls", store).out.splitlines()[1].split()[-1] == "-"
    (row,) = run("ls", store, "--json").document["steps"]
    assert str(row["saved"])[:22] == ("None" if created > 2**60 else "9999-12-31T23:59:59.99")
    monkeypatch.undo()
    time.tzset()


def test_ls_of_a_damaged_store(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2, 3], "--exact", "none")
    newest = max(store.glob("*.ckptz"))
    flip(newest, -3)
    ran = run("ls", store, "--json")
    assert ran.code == 0
    assert [row["step"] for row in ran.document["steps"]] == [1, 2]
    assert len(ran.document["warnings"]) == 1
    assert newest.name in ran.document["warnings"][0]
    assert ran.err.count("\n") == 1


def test_info_of_a_store(tmp_path: Path) -> None:
    store = pack(tmp_path, list(range(10, 80, 10)), "--full-every", "3")
    ran = run("info", store)
    assert ran.code == 0
    for words in (["policy", "lossy"], ["steps", "10", "to", "70", "(7)"], ["newest", "70,"]):
        assert any(line.split()[: len(words)] == words for line in ran.out.splitlines()), words
    document = run("info", store, "--json").document
    files = [path.stat().st_size for path in store.glob("*.ckptz")]
    assert document["kind"] == "store"
    assert document["bytes"] == sum(files)
    assert (document["full_every"], document["full_snapshots"]) == (3, 3)
    assert document["newest"] == 70
    assert document["off_the_line"] == document["damaged"] == 0
    rows = run("ls", store, "--json").document["steps"]
    for name in ("restore_files", "restore_bytes"):
        assert document[name] == max(row[name] for row in rows)


def test_info_of_one_full_snapshot_has_no_full_every(tmp_path: Path) -> None:
    assert run("info", pack(tmp_path, [1, 2]), "--json").document["full_every"] is None


def test_info_tensors(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2, 3])
    document = run("info", store, "--tensors", "--step", 2, "--json").document
    tensors = {row["path"]: row for row in document["tensors"]}
    assert tensors.keys() == {"w", "v", "step"}
    assert tensors["w"]["shape"] == [100, 40]
    assert tensors["w"]["lossy"]
    assert not tensors["step"]["lossy"]
    text = run("info", store, "--tensors").out
    assert "step 3:" in text
    assert any(line.split()[:3] == ["w", "float32", "100x40"] for line in text.splitlines())


def test_a_step_is_told_tensor_by_tensor(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2])
    told = run("info", store, "--step", 1)
    assert "\nstep 1:\n" in told.out
    assert told == run("info", store, "--step", 1, "--tensors")


def test_info_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "one.ckptz"
    ckptz.save_file({"w": np.ones((3, 4)), "lr": 0.1}, path)
    document = run("info", path, "--tensors", "--json").document
    assert document["kind"] == "file"
    assert document["bytes"] == path.stat().st_size
    assert [row["path"] for row in document["tensors"]] == ["w"]
    assert run("info", path).code == 0
    assert run("ls", path).code == 0


def test_names_from_files_cannot_move_the_cursor(tmp_path: Path) -> None:
    ckptz.save_file({"\x1b[2J\n\ud800é": np.ones(20)}, tmp_path / "one.ckptz")
    out = run("info", tmp_path / "one.ckptz", "--tensors").out
    assert "\x1b" not in out
    assert r"\x1b[2J\n\ud800é" in out


@pytest.mark.parametrize("command", ["ls", "info", "verify"])
def test_what_is_no_store(tmp_path: Path, command: str) -> None:
    line = fails(3, command, tmp_path / "none")
    assert line == f"ckptz: {tmp_path / 'none'}: No such file or directory"
    (tmp_path / "empty").mkdir()
    assert "no snapshots in this folder" in fails(3, command, tmp_path / "empty")


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, w=np.ones(3))
    assert "offset 0: not a ckptz file" in fails(3, "info", path)


def test_a_store_without_a_good_snapshot(tmp_path: Path) -> None:
    store = pack(tmp_path, [1])
    flip(next(store.glob("*.ckptz")), -3)
    ran = run("ls", store)
    assert ran.code == 3
    assert ran.err.splitlines()[-1].endswith("no snapshot here can be restored")


def test_snapshots_off_the_line(tmp_path: Path) -> None:
    with ckptz.CheckpointManager(tmp_path / "store") as manager:
        for step, state in enumerate(walk(3)):
            manager.save(step, state)
        manager.restore(1, rewind=True)
        manager.save(5, walk(1, seed=2)[0])
    document = run("info", tmp_path / "store", "--json").document
    assert document["steps"] == [0, 1, 5]
    assert document["off_the_line"] == 1
    assert "off the line" in run("info", tmp_path / "store").out


def test_policies_of_rules_are_spelled_out(tmp_path: Path) -> None:
    policy = [ckptz.Rule("v", mode="lossy", levels=2), ckptz.Rule("*", mode="exact")]
    with ckptz.CheckpointManager(tmp_path / "store", policy) as manager:
        manager.save(1, walk(1)[0])
    found = run("info", tmp_path / "store", "--json").document["policy"]
    assert found == "v: lossy levels=2, *: exact"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9_994, "9.99 kB"),
        (99_940, "99.9 kB"),
        (123_456, "123 kB"),
        (999_999, "1000 kB"),
        (10**7, "10.0 MB"),
        (5 * 10**18, "5.00 EB"),
    ],
)
def test_sizes(number: int, text: str) -> None:
    assert size(number) == text


def test_numbers_for_reading() -> None:
    assert (ratio_text(100, 80), ratio_text(1000, 10), ratio_text(5, 0)) == (
        "1.25x",
        "100.0x",
        "5.00x",
    )
    assert (error_text(0.0), error_text(None), error_text(float("inf"))) == ("0", "-", "inf")
    assert (count(1, "file"), count(1234, "file")) == ("1 file", "1,234 files")
    assert table(["<a", "b"], [["x", 1], ["long", 100]]) == ["a       b", "x       1", "long  100"]
