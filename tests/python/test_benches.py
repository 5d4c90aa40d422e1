"""The comparison with peers runs from end to end, whatever of them is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import stores

ROOT = Path(__file__).parents[2]

SECTIONS = [
    "One array of 0 Mi float32",
    "Two threads against one",
    "Importing",
    "f32 weights",
    "f32 deltas of gpt_nano",
    "bf16 weights",
    "Exact bf16 deltas",
    "A chain of 32 deltas",
    "against one of",
    "a whole Adam state",
    "Saves against each other",
    "Peak memory of a save",
    "Where the time goes",
]


def test_the_comparison_runs_and_writes_every_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    script = ROOT / "benches" / "compare.py"
    command = [sys.executable, script, ROOT / "examples" / "data", "--quick", "--mb", "1"]
    done = subprocess.run(
        [*map(str, command), "--markdown", str(page)],
        capture_output=True,
        text=True,
        env=stores.environment(),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "- CPU: " in text
    assert "- not installed, and so not in the tables: " in text
    titles = [line for line in text.splitlines() if line.startswith("### ")]
    for section in SECTIONS:
        assert any(section in title for title in titles), section
