"""A small GPT on characters, trained and saved every iteration: what that costs, and resuming.

    python benches/loop.py cost TEXT       iterations a second with and without asynchronous saves
    python benches/loop.py resume TEXT     killed, resumed and run on: the loss curve beside that of
                                           a run that nothing interrupts

Needs torch, on the CPU. Blocks of iterations with and without saves take turns, and the figure is
the median over pairs of neighbours: other programs on the machine disturb both alike. `--quiet 0.3`
counts only pairs beside which they use less than that of a core, so that one is free.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ckptz
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(self.ln1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self, symbols: int, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.lnf, self.head = nn.LayerNorm(width), nn.Linear(width, symbols, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.lnf(x))


class Run:
    """A training run; the batch of an iteration follows from its number."""

    def __init__(self, options: argparse.Namespace) -> None:
        text = Path(options.text).read_text()
        symbols = {symbol: number for number, symbol in enumerate(sorted(set(text)))}
        self.data = torch.tensor([symbols[symbol] for symbol in text])
        self.batch, self.context = options.batch, options.context
        torch.set_num_threads(options.torch_threads)
        torch.manual_seed(0)
        self.model = Gpt(len(symbols), options.width, options.layers, self.context)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1
        )
        self.step = 0

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, step: int, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = step

    def iterate(self) -> float:
        """Train one iteration; return its loss."""
        self.step += 1
        chance = torch.Generator().manual_seed(self.step)
        at = torch.randint(len(self.data) - self.context - 1, (self.batch, 1), generator=chance)
        chosen = self.data[at + torch.arange(self.context + 1)]
        logits = self.model(chosen[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), chosen[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def spin() -> None:
    while True:
        pass


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep so many cores busy."""
    context = multiprocessing.get_context("spawn")
    busy = [context.Process(target=spin, daemon=True) for _ in range(processes)]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.terminate()
            process.join()


def others_use(seconds: float) -> float:
    """Return how many cores other processes keep busy for a while."""
    start = busy_seconds(), sum(os.times()[:2])
    time.sleep(seconds)
    return (busy_seconds() - start[0] - sum(os.times()[:2]) + start[1]) / seconds


def waited_for_a_core() -> float:
    """Return the seconds that this thread has been ready to run and had no core."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def busy_seconds() -> float:
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


class Cost:
    """Blocks of iterations, in turns with and without saves."""

    def __init__(self, options: argparse.Namespace, manager: ckptz.CheckpointManager) -> None:
        self.run = Run(options)
        self.iterations = options.iterations
        self.manager = manager
        self.stalls: list[float] = []

    def block(self, saving: bool) -> tuple[float, float, float]:
        """Return the seconds of an iteration, those with a core, and the cores others used."""
        busy, own = busy_seconds(), sum(os.times()[:2])
        start, waited = time.perf_counter(), waited_for_a_core()
        for _ in range(self.iterations):
            self.run.iterate()
            if saving:
                before = time.perf_counter()
                self.manager.save(self.run.step, self.run.state(), blocking=False)
                self.stalls.append(time.perf_counter() - before)
        took, waited = time.perf_counter() - start, waited_for_a_core() - waited
        others = busy_seconds() - busy - sum(os.times()[:2]) + own
        self.manager.wait()
        return took / self.iterations, (took - waited) / self.iterations, others / took


def cost(options: argparse.Namespace) -> None:
    """Time pairs of blocks; with --quiet only those beside which others do little count."""
    pairs: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(dir=options.dir) as folder, load(options.load):
        manager = ckptz.CheckpointManager(folder, threads=options.save_threads)
        made = Cost(options, manager)
        made.block(False)
        made.block(True)
        while len(pairs) < options.pairs and time.monotonic() < end:
            if options.quiet is not None and others_use(0.3) > options.quiet:
                continue
            # Which of a pair comes first changes, too.
            order = (False, True) if len(pairs) % 2 else (True, False)
            found = {saving: made.block(saving) for saving in order}
            if options.quiet is None or max(f[2] for f in found.values()) < options.quiet:
                pairs.append((found[False], found[True]))
        began = time.perf_counter()
        manager.save(made.run.step + 1, made.run.state())
        alone = time.perf_counter() - began
        nbytes = manager.stats().raw_bytes
        manager.close()
    if len(pairs) < 2:
        sys.exit("too few pairs")
    without, with_saves = (
        statistics.median(one[0] for one in side) for side in zip(*pairs, strict=True)
    )
    print(
        f"state {nbytes / 1e6:.2f} MB; iteration {1000 * without:.1f} ms, with a save "
        f"{1000 * with_saves:.1f} ms ({1 / without:.2f} and {1 / with_saves:.2f} a second)"
    )
    for which, name in enumerate(("overhead", "the same, waits for a core taken off")):
        ratios = [saving[which] / plain[which] - 1 for plain, saving in pairs]
        low, middle, high = (100 * cut for cut in statistics.quantiles(ratios, n=4))
        print(f"{name}: median {middle:+.1f}% (quartiles {low:+.1f}% .. {high:+.1f}%)")
    print(
        f"{len(pairs)} pairs of {options.iterations} iterations; a save keeps the loop for "
        f"{1000 * statistics.median(made.stalls):.2f} ms, done at once it takes "
        f"{1000 * alone:.0f} ms"
    )


def train(options: argparse.Namespace) -> None:
    """Train from what the store has to the last step; print each loss."""
    run = Run(options)
    with ckptz.CheckpointManager(options.store, threads=options.save_threads) as manager:
        newest = manager.latest_step()
        if newest is not None:
            run.load(newest, manager.restore(newest))
        while run.step < options.steps:
            loss = run.iterate()
            print(json.dumps([run.step, loss]), flush=True)
            manager.save(run.step, run.state(), blocking=False)


def child(options: argparse.Namespace, store: Path, kill_at: int | None) -> dict[int, float]:
    """Run `train` in a process; kill it once it has told of a step."""
    command = [sys.executable, __file__, "train", *sys.argv[2:], "--store", str(store)]
    losses = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            step, loss = json.loads(line)
            losses[step] = loss
            if step == kill_at:
                os.kill(process.pid, signal.SIGKILL)
    return losses


def resume(options: argparse.Namespace) -> None:
    """Compare a run that is killed and resumed, over and over, with one that is not."""
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        whole = child(options, Path(folder, "whole"), None)
        kills = [options.steps * n // 4 for n in (1, 2, 3)]
        seen: dict[int, float] = {}
        for kill_at in [*kills, None]:
            losses = child(options, Path(folder, "killed"), kill_at)
            print(
                f"from step {min(losses)} to {max(losses)}", "" if kill_at is None else "(killed)"
            )
            seen.update(losses)
    print("step  uninterrupted  killed and resumed")
    for step in sorted({1, *range(options.steps // 12, options.steps + 1, options.steps // 12)}):
        print(f"{step:4}  {whole[step]:13.6f}  {seen[step]:18.6f}")
    differing = sum(whole[step] != seen[step] for step in whole)
    print(f"{len(whole)} steps, of which {differing} have another loss")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["cost", "resume", "train"])
    parser.add_argument("text", help="a text to learn from")
    for name, default in {
        "width": 48, "layers": 2, "context": 32, "batch": 32, "torch-threads": 1,
        "save-threads": 1, "iterations": 10, "pairs": 12, "load": 0, "steps": 240,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--quiet", type=float, help="(cost) cores that others may use at most")
    parser.add_argument("--minutes", type=float, default=60, help="(cost) ends after that")
    parser.add_argument("--dir", help="where to make the stores")
    parser.add_argument("--store", help="(train)")
    options = parser.parse_args()
    {"cost": cost, "resume": resume, "train": train}[options.what](options)


if __name__ == "__main__":
    main()
