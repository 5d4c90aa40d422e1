"""`ckptz gc`, and what `ls` and `info` say of stores from which steps have been dropped."""

from __future__ import annotations

from pathlib import Path

import pytest
import stores
from ckptz import CheckpointManager
from cli_tools import fails, pack, run
from retained import TREES


def rewound(path: Path) -> CheckpointManager:
    """Manager of a store with two snapshots off the line."""
    manager = CheckpointManager(path, full_every=50)
    for step in range(5):
        manager.save(step, TREES[step], metrics={"loss": 5.0 - step})
    manager.restore(2, rewind=True)
    manager.save(3, TREES[3])
    return manager


def test_what_no_step_needs(tmp_path: Path) -> None:
    store = tmp_path / "store"
    rewound(store).close()
    before = stores.files(store)
    told = run("gc", store, "--dry-run")
    assert stores.files(store) == before
    assert told.out.splitlines()[-1].endswith("; 0 steps dropped, 4 kept")
    assert told.out.count("would delete 000000000") == 2
    document = run("gc", store, "--json").document
    assert document["files"] == sorted(set(before) - set(stores.files(store)), reverse=True)
    assert (document["kept"], document["dropped"], document["dry_run"]) == ([0, 1, 2, 3], [], False)
    assert run("gc", store).out.endswith("deleted 0 files, 0 B; 0 steps dropped, 4 kept\n")
    assert run("verify", store).code == 0


def test_a_folder_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not ours")
    for more in ([], ["--dry-run"], ["--max-to-keep", "2"]):
        assert "no snapshots in this folder" in fails(3, "gc", tmp_path, *more)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_steps_that_are_not_to_be_kept(tmp_path: Path) -> None:
    store = pack(tmp_path, list(range(1, 9)))
    words = ["gc", store, "--max-to-keep", "2", "--keep-period", "3"]
    assert run(*words, "--dry-run", "--json").document["dropped"] == [1, 2, 4, 5]
    assert run(*words, "--json").document["kept"] == [3, 6, 7, 8]
    assert [row["step"] for row in run("ls", store, "--json").document["steps"]] == [3, 6, 7, 8]
    document = run("info", store, "--json").document
    assert (document["dropped"], document["off_the_line"], document["pinned"]) == (4, 0, [])
    assert "dropped steps    4 snapshots" in run("info", store).out
    for few in (["--max-to-keep", "0"], ["--max-to-keep", "x"], ["--keep-every-seconds", "0"]):
        fails(2, "gc", store, *few)


def test_what_ls_and_info_say_of_pins_and_metrics(tmp_path: Path) -> None:
    manager = rewound(tmp_path)
    manager.pin(1)
    manager.merge()
    rows = run("ls", tmp_path, "--json").document["steps"]
    assert [row["pinned"] for row in rows] == [False, True, False, False]
    assert rows[1]["metrics"] == {"loss": 4.0}
    assert [row["lossy_restores"] for row in rows] == [0, 0, 0, 1]
    document = run("info", tmp_path, "--json").document
    assert (document["pinned"], document["restore_files"]) == ([1], 3)
    # A merged file counts once.
    assert document["bytes"] == sum(
        len(data) for name, data in stores.files(tmp_path).items() if name.endswith("ckptz")
    )
    assert "pinned           1" in run("info", tmp_path).out
    # Its writer is still there.
    assert "another writer holds this store" in fails(3, "gc", tmp_path)
    assert run("gc", tmp_path, "--dry-run").code == 0


@pytest.mark.parametrize("words", [[], ["--dry-run"]])
def test_what_is_no_store(tmp_path: Path, words: list[str]) -> None:
    assert "No such file" in fails(3, "gc", tmp_path / "nowhere", *words)
    (tmp_path / "file").write_text("x")
    assert "Not a directory" in fails(3, "gc", tmp_path / "file", *words)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
