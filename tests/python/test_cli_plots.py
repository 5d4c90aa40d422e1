"""Pictures, and the demo that draws one."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from ckptz.plots import PlotRow, plot_run
from cli_tools import fails, pack, run

ROOT = Path(__file__).parents[2]
HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None
needs_matplotlib = pytest.mark.skipif(
    not HAS_MATPLOTLIB, reason="needs matplotlib: pip install matplotlib"
)

ROWS = [
    PlotRow(0, 1.2, 0.0, "full"),
    PlotRow(10, 31.0, 0.4),
    PlotRow(20, 28.0, float("inf")),
    PlotRow(30, 30.0, None),
]


@needs_matplotlib
@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_kinds_of_pictures(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"run.{suffix}"
    plot_run(ROWS, path, title="a run")
    assert path.read_bytes().startswith(magic)


@needs_matplotlib
def test_what_a_picture_says(tmp_path: Path) -> None:
    path = tmp_path / "run.svg"
    plot_run([row._replace(run=name) for name in ("one", "two") for row in ROWS], path)
    words = set(re.findall(r"<text[^>]*>([^<]*)", path.read_text()))
    assert {"one", "two", "full snapshot (exact)", "step (training iterations)"} <= words
    assert {"size ratio", "(original bytes / stored bytes)", "10", "20"} <= words


@needs_matplotlib
@pytest.mark.parametrize(
    "rows",
    [
        [PlotRow(0, 1.2, 0.0, "full")],
        [PlotRow(5, 10.0, 0.5)],
        [PlotRow(step, 10.0 + step, 0.5) for step in range(500)],
        [PlotRow(10**12 + step, 1.0, None) for step in range(3)],
    ],
)
def test_runs_of_any_kind(tmp_path: Path, rows: list[PlotRow]) -> None:
    plot_run(rows, tmp_path / "run.png")


def test_pictures_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.bmp is not"):
        plot_run(ROWS, tmp_path / "run.bmp")
    with pytest.raises(ValueError, match="no steps"):
        plot_run([], tmp_path / "run.png")


@needs_matplotlib
def test_info_draws(tmp_path: Path) -> None:
    store = pack(tmp_path, [1, 2, 3])
    path = tmp_path / "run.png"
    assert run("info", store, "--plot", path, "--json").document["plot"] == str(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "is not .png" in fails(2, "info", store, "--plot", tmp_path / "run.bmp")
    assert "No such file" in fails(3, "info", store, "--plot", tmp_path / "none" / "run.png")


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = pack(tmp_path, [1])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = fails(2, "info", store, "--plot", tmp_path / "run.png")
    assert "pip install 'ckptz[plots]'" in line


@needs_matplotlib
def test_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = demo
    spec.loader.exec_module(demo)
    assert demo.main(["--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert len(re.findall(r"^ +\d+  (?:full|delta) .* yes$", out, re.MULTILINE)) == 6
    assert "NO" not in out
    last = out.splitlines()[-2:]
    assert last[0].startswith(f"picture: {tmp_path}")
    assert last[1].startswith("stores: ")
    assert (tmp_path / "ratio-and-error.png").stat().st_size > 10_000
    for store in (tmp_path / "stores").iterdir():
        data = ROOT / "examples" / "data" / store.name
        assert run("verify", store, "--against", data).code == 0
