"""What the campaigns share: how long they take, what they draw, and what they count."""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from typing import NoReturn

# What was wrong is told again at the end, of so many.
MOST = 8


class Tally:
    """Counts faults: how many there were, how many fired, and what was wrong after which."""

    def __init__(self, name: str, description: str | None, seconds: float) -> None:
        """Read the command line. seconds: how long the campaign takes if that does not say."""
        parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.RawTextHelpFormatter
        )
        parser.add_argument("--seconds", type=float, default=seconds, help="how long, about")
        parser.add_argument("--seed", type=int, default=int(time.time()))
        options = parser.parse_args()
        self.name = name
        self.seed: int = options.seed
        self.seconds: float = options.seconds
        self.end = time.monotonic() + self.seconds
        self.kinds: Counter[str] = Counter()
        self.idle: list[str] = []
        self.wrong: list[str] = []

    def more(self) -> bool:
        """Whether there is time for more."""
        return time.monotonic() < self.end

    def note(self, kind: str, what: str, wrong: str = "", *, fired: bool = True) -> None:
        """Count a fault. wrong: what must not have come of it."""
        self.kinds[kind] += 1
        if not fired:
            self.idle.append(f"{what}: the fault did not fire")
            print(f"{self.name}: {self.idle[-1]}", flush=True)
        if wrong:
            self.wrong.append(f"{what}: {wrong}")
            print(f"{self.name}: {self.wrong[-1]}", flush=True)

    def finish(self, unit: str, more: str = "") -> NoReturn:
        """Print what was counted and end the process: a fault that did not fire is a failure."""
        for kind, times in sorted(self.kinds.items()):
            print(f"  {kind:<28} {times:>7}")
        # Again, as they are far above by now.
        for what in [*self.wrong, *self.idle][:MOST]:
            print(f"  {what}")
        total = self.kinds.total()
        print(
            f"{self.name}: {total} {unit}, {total - len(self.idle)} fired, "
            f"{len(self.wrong)} lost or wrong{more}; seed {self.seed}",
            flush=True,
        )
        os._exit(bool(self.wrong or self.idle or not total))

    def skip(self, why: str) -> NoReturn:
        """End the process: it is not possible here."""
        print(f"{self.name}: skipped: {why}", flush=True)
        os._exit(0)
