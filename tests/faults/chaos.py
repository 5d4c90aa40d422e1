"""ckpt-chaos: a training run dies at every change of a file, and must go on as if nothing had been.

    python tests/faults/chaos.py [--seconds N]

Of `train.py` beside this: killed before a change, with the file cut to half, with all undone that
was not synced, or told to end (SIGTERM). It then runs again in the same folder: it must go on from
the last step that was acknowledged, or a later one, and end with the same bytes as a run that
nothing happened to. At least 50 points. The tool is in an environment of its own, .venv-chaos or
what the variable CHAOS names; `make faults` puts it there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tally import Tally

ROOT = Path(__file__).parents[2]
FEWEST = 50
SECONDS_A_POINT = 1.5
MODES = ("before", "torn", "term", "unsynced")
BAD = "HARD_FAIL,SILENT_DIVERGENCE,LOST_WORK,CONTROL_FAIL"
POINT = re.compile(rf"#\d+ (\S+?):.*\[({'|'.join(MODES)})\].* ([A-Z_]+)(  \[.*)?")


def main() -> None:
    tally = Tally("chaos", __doc__, 90)
    beside = ROOT / os.environ.get("CHAOS", ".venv-chaos") / "bin" / "ckpt-chaos"
    tool = str(beside) if beside.exists() else shutil.which("ckpt-chaos")
    if tool is None:
        tally.skip("needs ckpt-chaos, which `make faults` installs")
    points = max(FEWEST + len(MODES), int(tally.seconds / SECONDS_A_POINT))
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "--work": f"{folder}/work",
            "--modes": ",".join(MODES),
            "--step-regex": r"resumed from step (\d+)",
            "--checkpoint-glob": "{out}/acknowledged/step-*",
            "--result-file": "{out}/final.bin",
            "--fail-on": BAD,
            "--max-points": str(points),
            "--jobs": "2",
        }
        words = [word for option in options.items() for word in option]
        train = [sys.executable, str(Path(__file__).with_name("train.py")), "{out}"]
        done = subprocess.run(
            [tool, "run", *words, "--", *train], capture_output=True, text=True, cwd=ROOT
        )
    for line in done.stdout.splitlines():
        if found := POINT.fullmatch(line.strip()):
            event, mode, verdict, flags = found.groups()
            wrong = "" if verdict == "PASS" else verdict
            tally.note(f"{event} {mode}", line.strip(), wrong, fired=flags is None)
    if done.returncode or tally.kinds.total() < FEWEST:
        print(done.stdout, done.stderr)
        tally.wrong.append(f"exit status {done.returncode}, {tally.kinds.total()} points")
    tally.finish("crashes")


if __name__ == "__main__":
    main()
