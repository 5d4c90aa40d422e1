"""The command as a whole: usage, help, exit codes, warnings, signals, pipes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import ckptz
import numpy as np
import pytest
from ckptz.cli import pack as pack_command
from cli_tools import environment, fails, pack, process, run, walk, write_run

COMMANDS = ["pack", "unpack", "ls", "info", "verify", "gc"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["pack"],
        ["pack", "a.npz"],
        ["unpack", "store"],
        ["ls"],
        ["ls", "a", "b"],
        ["info", "store", "--step", "x"],
        ["verify", "store", "--against"],
        ["pack", "a.npz", "-o", "s", "--full-every", "-1"],
        ["pack", "a.npz", "-o", "s", "--exact", "some"],
        ["ls", "store", "--thr", "1"],
        ["ls", "store", "--threads", "0"],
        ["ls", "store", "--threads", "4096"],
    ],
)
def test_usage(words: list[str]) -> None:
    fails(2, *words)


def test_a_usage_error_names_the_help() -> None:
    assert fails(2, "unpack", "store").endswith(
        "the following arguments are required: -o/--output (ckptz unpack --help says more)"
    )


def test_threads_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = pack(tmp_path, [1])
    monkeypatch.setenv("CKPTZ_NUM_THREADS", "0")
    assert "threads=0" in fails(2, "ls", store)
    assert run("ls", store, "--threads", "1").code == 0


def test_version_and_help() -> None:
    ran = process("--version")
    assert (ran.returncode, ran.stdout) == (0, f"ckptz {ckptz.__version__}\n")
    for words in ([], *([command] for command in COMMANDS)):
        ran = process(*words, "--help")
        assert ran.returncode == 0
        assert "example" in ran.stdout
        assert max(map(len, ran.stdout.splitlines())) <= 100
    assert all(command in process("--help").stdout for command in COMMANDS)


def test_the_installed_command() -> None:
    command = Path(sys.executable).parent / "ckptz"
    if not command.exists():
        pytest.skip("the package is not installed, only found")
    ran = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"ckptz {ckptz.__version__}\n"


def test_json_of_every_command(tmp_path: Path) -> None:
    paths = write_run(tmp_path / "run", [1, 2])
    store, out = tmp_path / "store", tmp_path / "out.npz"
    documents = [
        run("pack", *paths, "-o", store, "--json").document,
        run("unpack", store, "-o", out, "--json").document,
        run("ls", store, "--json").document,
        run("info", store, "--json").document,
        run("verify", store, "--json").document,
        run("gc", store, "--json").document,
    ]
    keys = [
        {"store", "packed", "skipped", "raw_bytes", "stored_bytes", "residual_bytes"},
        {"source", "step", "file", "tensors", "raw_bytes", "left_out"},
        {"source", "steps"},
        {"source", "policy", "newest", "full_every", "restore_files", "restore_bytes", "bytes"},
        {"source", "ok", "steps", "snapshots", "problems"},
        {"store", "dry_run", "kept", "dropped", "files", "bytes"},
    ]
    for document, expected in zip(documents, keys, strict=True):
        assert expected <= document.keys()


def test_json_has_no_numbers_that_json_has_not(tmp_path: Path) -> None:
    """An error of x/0 is infinite."""
    flat = np.zeros(100, np.float32)
    moved = flat.copy()
    moved[3] = 1
    for step, array in enumerate([flat, moved, flat, moved]):
        np.savez(tmp_path / f"{step}.npz", w=array)
    assert run("pack", tmp_path, "-o", tmp_path / "store", "--json").code == 0
    for words in (["ls"], ["info", "--tensors"], ["verify", "--against", tmp_path]):
        out = run(words[0], tmp_path / "store", *words[1:], "--json").out
        assert not re.search("NaN|Infinity", out)


def test_warnings_are_a_line_each(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2])
    (store / "0000000003-x.ckptz").write_bytes(b"")
    (store / "0000000004-x.ckptz").write_bytes(b"x")
    lines = run("ls", store).err.splitlines()
    assert [line.startswith("ckptz: warning: skipped: ") for line in lines] == [True, True]


def test_other_warnings_stay_what_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def old(*_: object) -> None:
        warnings.warn("something old", FutureWarning, stacklevel=1)
        raise OSError("enough")

    monkeypatch.setattr(pack_command, "match_steps", old)
    ran = run("pack", "a", "-o", tmp_path)
    assert ran.code == 3
    assert "FutureWarning: something old" in ran.err


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wrong(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(pack_command, "match_steps", wrong)
    with pytest.raises(ZeroDivisionError):
        run("pack", "a", "-o", tmp_path)


def test_no_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def hungry(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(pack_command, "match_steps", hungry)
    assert fails(3, "pack", "a", "-o", tmp_path) == "ckptz: there is not enough memory"


def test_names_with_odd_letters_are_one_line(tmp_path: Path) -> None:
    line = fails(3, "ls", tmp_path / "a\nb\x1b")
    assert line.endswith(r"a\nb\x1b: No such file or directory")


def test_a_reader_that_leaves_early(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2])
    command = [sys.executable, "-m", "ckptz", "ls", str(store)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as ran:
        assert ran.stdout is not None
        assert ran.stderr is not None
        ran.stdout.close()
        assert ran.stderr.read() == b""
    assert ran.returncode == 0


def interrupt(command: list[str], store: Path) -> tuple[int, str]:
    """Send SIGINT once two snapshots are there; return exit code and stderr."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as ran:
        until = time.monotonic() + 60
        while len(list(store.glob("*[0-9a-f].ckptz"))) < 2 and time.monotonic() < until:
            time.sleep(0.001)
        ran.send_signal(signal.SIGINT)
        _, err = ran.communicate(timeout=60)
    return ran.returncode, err


@pytest.mark.parametrize("json", [False, True])
def test_ctrl_c_leaves_a_valid_store(tmp_path: Path, json: bool) -> None:
    steps = list(range(40))
    store = tmp_path / "store"
    paths = write_run(tmp_path / "run", steps, entries=200_000)
    words = ["pack", *map(str, paths), "-o", str(store)]
    code, err = interrupt(
        [sys.executable, "-m", "ckptz", *words, *(["--json"] if json else [])], store
    )
    assert code == 130
    if not json:
        assert re.fullmatch(
            r"ckptz: interrupted \(\d+ of 40 files are packed; go on with --skip-existing\)\n", err
        )
    assert not list(store.glob(".tmp-*"))
    assert run("verify", store).code == 0
    assert run(*words, "--skip-existing").code == 0
    assert run("verify", store, "--against", tmp_path / "run").code == 0
    assert run("verify", store, "--json").document["steps"] == steps


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    paths = write_run(tmp_path / "run", [1])

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    ran = run("pack", *paths, "-o", tmp_path / "store")
    assert ran.code == 3
    assert ran.err.startswith(f"ckptz: {tmp_path / 'store'}")
    assert ran.err.endswith(": No space left on device\n")
    assert ran.err.count("\n") == 1


def test_states_of_the_library_and_of_the_command_are_one(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2])
    with ckptz.CheckpointManager(store) as manager:
        manager.save(3, walk(3)[2])
    assert run("verify", store, "--json").document["steps"] == [1, 2, 3]


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize(("name", "code"), [("store", 0), ("nowhere", 3)])
def test_streams_that_are_closed(tmp_path: Path, closed: str, name: str, code: int) -> None:
    pack(tmp_path, [1, 2])
    line = f'exec "$0" -m ckptz ls "$1" {closed}'
    command = ["sh", "-c", line, sys.executable, str(tmp_path / name)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert ran.returncode == code
    assert "Traceback" not in ran.stderr
    assert ("STEP" in ran.stdout.upper()) == (code == 0 and closed == "2>&-")


NINES = "9" * 5000


@pytest.mark.parametrize(
    "words",
    [
        ("--steps", NINES),
        ("--steps", f"0:{NINES}"),
        ("--policy", f"lossy:{NINES}"),
        ("--policy", f"paper:{NINES}"),
    ],
)
def test_numbers_of_very_many_digits(tmp_path: Path, words: tuple[str, str]) -> None:
    (tmp_path / "run").mkdir()
    np.savez(tmp_path / "run" / "1.npz", w=np.zeros(3))
    fails(2, "pack", tmp_path / "run", "-o", tmp_path / "store", *words)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "words", [("pack", "x.npz", "-o", ""), ("ls", ""), ("unpack", "x", "-o", "")]
)
def test_an_empty_path(words: tuple[str, ...]) -> None:
    assert "an empty path" in fails(2, *words)
