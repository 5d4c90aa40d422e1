"""All campaigns of faults, one after another, each with its share of the time.

    python tests/faults/campaign.py [--seconds N] [--seed N]

`calls.py` (system calls), `power.py` (power cuts), `chaos.py` (ckpt-chaos on a training run; 50
points at least, however short the time), `flips.py` (flipped bits and cut files), `races.py`. It
fails if something is lost or wrong after a fault, and if a fault did not fire; what is not possible
here is skipped, and said at the end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

from tally import MOST

SHARES = {"calls": 0.4, "power": 0.2, "chaos": 0.2, "flips": 0.1, "races": 0.1}
# A campaign that takes so many seconds more than its share hangs.
GRACE = 300


def run(name: str, seconds: float, seed: int) -> tuple[str, bool]:
    """Run a campaign; return how it ended, and whether all was well."""
    script = Path(__file__).with_name(f"{name}.py")
    command = [sys.executable, str(script), "--seconds", str(seconds), "--seed", str(seed)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(seconds + GRACE, process.kill)
    timer.start()
    last: deque[str] = deque([""], maxlen=MOST + 1)
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        last.append(line.rstrip())
    status = process.wait()
    timer.cancel()
    if status == 0 and last[-1].startswith(f"{name}: "):
        return last[-1], True
    return "\n".join([f"{name}: FAILED, exit status {status}:", *last]), False


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=420, help="how long all take, about")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    found = [run(name, share * options.seconds, options.seed) for name, share in SHARES.items()]
    print("\n".join(["", *(line for line, _ in found)]))
    sys.exit(not all(well for _, well in found))


if __name__ == "__main__":
    main()
