"""`ckptz pack`: users' checkpoint files into a store."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from .. import CheckpointManager
from ..errors import StepExistsError
from .arguments import (
    Commands,
    add_command,
    add_common,
    file_path,
    open_place,
    place,
    whole_number,
)
from .console import Console
from .report import Outcome, count, json_number, ratio_text, size
from .steps import match_steps, read_state

__all__ = ["add_to", "run"]

_EPILOG = """\
examples:
  ckptz pack run/*.safetensors -o run.store
  ckptz pack checkpoints/ -o run.store --skip-existing    what is new in a folder
  ckptz pack a.npz b.npz c.npz -o run.store --steps 0:500
  ckptz pack epochs/ -o run.store --policy exact

A file's step is the one number in its name (9 comes before 10). If any name has not one number,
the steps are the positions. Files may be .safetensors, .npz, .npy, .pt or .pth; torch is not
needed, and no pickle is run.
"""


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "pack",
        run,
        "pack checkpoint files into a store",
        "Pack checkpoint files, one step each, into a store, which is made if needed.",
        _EPILOG,
    )
    parser.add_argument(
        "files", nargs="+", type=file_path, metavar="FILE", help="file, or folder of them"
    )
    parser.add_argument(
        "-o", "--output", type=place, required=True, metavar="STORE", help="folder or URL"
    )
    parser.add_argument(
        "--steps", metavar="STEPS", help="FIRST:STRIDE, or a number for each file: 100,200,300"
    )
    parser.add_argument(
        "--skip-existing", action="store_true", help="leave out steps that the store has already"
    )
    _add_saving(parser)
    add_common(parser)


def _add_saving(parser: argparse.ArgumentParser) -> None:
    """Add what `CheckpointManager` takes."""
    parser.add_argument(
        "--policy",
        metavar="POLICY",
        help="lossy, lossy:LEVELS, exact, paper or paper:BITS (default: the store's own; a new "
        "store: lossy)",
    )
    parser.add_argument(
        "--exact",
        choices=("latest", "none"),
        default="latest",
        help="keep the newest step bit for bit, or not (default: latest)",
    )
    parser.add_argument(
        "--full-every",
        type=whole_number,
        default=50,
        metavar="N",
        help="a full snapshot every N steps; 0: only where it is needed (default: 50)",
    )
    parser.add_argument(
        "--max-restore-bytes",
        type=whole_number,
        default=0,
        metavar="N",
        help="a full snapshot where a restore would read more than N bytes; 0: no bound (default)",
    )


def run(options: argparse.Namespace, console: Console) -> Outcome:
    """Pack the files. Raises what the library raises, or `UsageError`."""
    open_place(options.output)  # for its error, before anything is read
    todo = match_steps(options.files, options.steps, console)
    packed: list[dict[str, object]] = []
    skipped: list[dict[str, object]] = []
    with (
        CheckpointManager(
            options.output,
            options.policy,
            exact=options.exact,
            full_every=options.full_every,
            max_restore_bytes=options.max_restore_bytes or None,
            threads=options.threads,
        ) as manager,
        console.progress("pack", sum(path.stat().st_size for _, path in todo)) as progress,
    ):
        there = set(manager.all_steps()) if options.skip_existing else set()
        for step, path in todo:
            progress.note(path.name)
            if step in there:
                skipped.append({"step": step, "file": str(path)})
            else:
                _save(manager, step, path)
                packed.append(_row(manager, step, path))
                console.hint = f"{len(packed)} of {len(todo) - len(skipped)} files are packed; "
                console.hint += "go on with --skip-existing"
            progress.advance(path.stat().st_size)
            # What was read from a torch file refers to itself: no wait for the collector here.
            gc.collect()
        outcome = _outcome(manager, packed, skipped)
    if skipped:
        console.note(f"note: skipped {count(len(skipped), 'step')} that the store has already")
    return outcome


def _save(manager: CheckpointManager, step: int, path: Path) -> None:
    """Save one file; its pages are let go of on return."""
    try:
        manager.save(step, read_state(path))
    except StepExistsError:
        raise StepExistsError(
            f"{path}: step {step} is in {manager.path} already; --skip-existing leaves it out, "
            "--steps gives the files other steps"
        ) from None


def _row(manager: CheckpointManager, step: int, path: Path) -> dict[str, object]:
    stats = manager.stats(step)
    return {
        "step": step,
        "file": str(path),
        "kind": stats.kind,
        "raw_bytes": stats.raw_bytes,
        "bytes": stats.bytes,
        "error": json_number(stats.error),
    }


def _outcome(
    manager: CheckpointManager,
    packed: list[dict[str, object]],
    skipped: list[dict[str, object]],
) -> Outcome:
    residual = manager.stats().residual_bytes if packed else 0
    raw = sum(int(str(row["raw_bytes"])) for row in packed)
    stored = sum(int(str(row["bytes"])) for row in packed) + residual
    document: dict[str, object] = {
        "store": manager.path,
        "packed": packed,
        "skipped": skipped,
        "raw_bytes": raw,
        "stored_bytes": stored,
        "residual_bytes": residual,
    }
    if not packed:
        return Outcome(document, [f"{manager.path}: nothing new to pack"])
    first, last = packed[0]["step"], packed[-1]["step"]
    steps = f"step {first}" if len(packed) == 1 else f"steps {first} to {last}"
    line = (
        f"{manager.path}: packed {count(len(packed), 'file')}, {steps}: "
        f"{size(raw)} as {size(stored)} ({ratio_text(raw, stored)})"
    )
    if residual:
        line += f", of which {size(residual)} keep the newest step exact until there is a newer one"
    return Outcome(document, [line])
