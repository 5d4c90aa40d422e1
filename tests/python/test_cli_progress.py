"""Progress shows on a terminal, and only there."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from cli_tools import environment, pack, write_run


def on_a_terminal(*words: object, tqdm: bool, columns: int = 80) -> tuple[int, str, str]:
    """Run a command whose stderr is a terminal; return exit code, stdout and what that showed."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24 if columns else 0, columns, 0, 0))
    code = "import sys; from ckptz.cli import main; "
    code += "" if tqdm else "sys.modules['tqdm'] = None; "
    command = [sys.executable, "-c", f"{code} sys.exit(main(sys.argv[1:]))", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, env=environment()) as ran:
        os.close(slave)
        shown = b""
        while True:
            try:
                piece = os.read(master, 1 << 16)
            except OSError:  # the last one who had it open is gone
                break
            if not piece:
                break
            shown += piece
        assert ran.stdout is not None
        out = ran.stdout.read().decode()
    os.close(master)
    return ran.returncode, out, shown.decode()


@pytest.mark.parametrize("columns", [0, 80])
@pytest.mark.parametrize("tqdm", [True, False])
def test_progress_on_a_terminal(tmp_path: Path, tqdm: bool, columns: int) -> None:
    if tqdm:
        pytest.importorskip("tqdm", reason="needs tqdm: pip install tqdm")
    paths = write_run(tmp_path / "run", [1, 2, 3])
    store, out = tmp_path / "store", tmp_path / "out.npz"
    for words in (
        ["pack", *paths, "-o", store],
        ["unpack", store, "-o", out],
        ["verify", store, "--against", tmp_path / "run"],
    ):
        code, text, shown = on_a_terminal(*words, tqdm=tqdm, columns=columns)
        assert code == 0
        assert "\r" not in text
        assert f"{words[0]}: " in shown
        assert "\r" in shown
        # Nothing of it stays.
        assert shown.endswith("\r")
        assert ("|" in shown or "B/s" in shown) == tqdm


@pytest.mark.parametrize("tqdm", [True, False])
def test_errors_have_their_own_line(tmp_path: Path, tqdm: bool) -> None:
    if tqdm:
        pytest.importorskip("tqdm", reason="needs tqdm: pip install tqdm")
    paths = write_run(tmp_path / "run", [1, 2])
    paths[1].write_bytes(b"12345678")
    code, _, shown = on_a_terminal("pack", *paths, "-o", tmp_path / "store", tqdm=tqdm)
    assert code == 3
    assert shown.split("\r")[-2].startswith("ckptz: ")


def test_no_progress_with_json(tmp_path: Path) -> None:
    paths = write_run(tmp_path / "run", [1, 2])
    words = ["pack", *paths, "-o", tmp_path / "store", "--json"]
    assert on_a_terminal(*words, tqdm=True)[2] == ""


def test_no_progress_in_a_pipe(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2])
    command = [sys.executable, "-m", "ckptz", "verify", str(store)]
    ran = subprocess.run(command, capture_output=True, env=environment(), check=True)
    assert ran.stderr == b""
