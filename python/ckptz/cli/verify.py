"""`ckptz verify`: every byte against its checksum, and restored steps against users' files."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..verify import VerifyReport, verify_store
from .against import Compared, compare
from .arguments import Commands, add_command, add_common, add_source, file_path
from .console import Console
from .errors import DAMAGE, DONE, UsageError, printable
from .report import Outcome, count, error_text, json_number, table
from .source import Source
from .steps import match_steps

__all__ = ["add_to", "run"]

_EPILOG = """\
examples:
  ckptz verify run.store
  ckptz verify run.store --against run/        the files that were packed
  ckptz verify one.ckptz --against model.pt

--against finds each file's step as pack does, restores it (exactly, where its residual is there)
and prints for each tensor the largest absolute error and the error of its record,
|restored - file| / |file - restored before|, both over finite entries. A tensor that is stored
exactly and differs is a difference, and so are one that is missing or too many and one that has,
without its residual, an entry beyond what the step's policy allows (max_error, max_rel_error).

exit codes: 0 all is well; 1 damage or a difference; 2 usage; 3 something could not be read
"""


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "verify",
        run,
        "check every byte, and compare with the original files",
        "Check every stored byte and every decoded chunk against its checksum.",
        _EPILOG,
    )
    add_source(parser)
    parser.add_argument(
        "--against",
        nargs="+",
        type=file_path,
        metavar="FILE",
        help="compare with these files or folders",
    )
    parser.add_argument("--steps", metavar="STEPS", help="the files' steps, as for pack")
    add_common(parser)


def run(options: argparse.Namespace, console: Console) -> Outcome:
    """Verify. Raises what the library raises for what cannot be read, or `UsageError`."""
    if options.steps is not None and not options.against:
        raise UsageError("--steps is for --against")
    # The report says all that the library would warn of.
    console.hears_warnings = False
    source = Source(options.source, console, options.threads, damaged=True)
    files = _files(options, source, console)
    with console.progress("verify") as progress:
        report = verify_store(source.store, options.threads, progress.advance)
        compared = []
        for step, path in files:
            progress.note(path.name)
            compared.append(compare(source, step, path, progress.advance))
    return _outcome(source, report, compared)


def _files(options: argparse.Namespace, source: Source, console: Console) -> list[tuple[int, Path]]:
    """Return (step, file) for `--against`; one file is compared with one, whatever its name."""
    if not options.against:
        return []
    files = match_steps(options.against, options.steps, console)
    if source.single and len(files) != 1:
        raise UsageError(f"{source.path} is one file; --against needs one too, not {len(files)}")
    if source.single:
        return [(entry.meta.step, files[0][1]) for entry in source.store.entries.values()]
    return files


def _outcome(source: Source, report: VerifyReport, compared: list[Compared]) -> Outcome:
    good = report.ok and all(one.ok for one in compared)
    name = str(source.path)
    document: dict[str, object] = {
        "source": name,
        "ok": good,
        "steps": report.steps,
        "snapshots": report.snapshots,
        "problems": [
            {"file": name if source.single else p.file, "step": p.step, "what": p.what}
            for p in report.problems
        ],
    }
    lines = [f"damaged: {printable(problem.what)}" for problem in report.problems]
    if compared:
        document["compared"] = [_compared_json(one) for one in compared]
        left = sorted(set(report.steps) - {one.step for one in compared})
        document["not_compared"] = left
        for one in compared:
            lines += _compared_lines(one)
        if left:
            lines.append(f"{count(len(left), 'step')} without a file to compare with")
    lines.append(_summary(name, report, compared))
    return Outcome(document, lines, DONE if good else DAMAGE)


def _summary(name: str, report: VerifyReport, compared: list[Compared]) -> str:
    checked = f"{count(report.snapshots, 'snapshot')} good"
    if report.problems:
        checked += f", {count(len(report.problems), 'problem')}"
    if compared:
        bad = sum(not one.ok for one in compared)
        checked += f"; {count(len(compared), 'file')} compared, "
        checked += "none of which differs" if not bad else f"{bad} of which differ"
        checked += " where it must not"
    return f"{name}: {checked}"


def _compared_json(one: Compared) -> dict[str, object]:
    return {
        "step": one.step,
        "file": str(one.file),
        "ok": one.ok,
        "problems": one.problems,
        "tensors": [
            {
                "path": path,
                "exact": t.exact,
                "largest_error": json_number(t.largest),
                "error": json_number(t.error),
                "problem": t.problem,
            }
            for path, t in one.tensors.items()
        ],
    }


def _compared_lines(one: Compared) -> list[str]:
    rows = [
        [
            path,
            "yes" if t.exact else "no",
            error_text(t.largest),
            error_text(t.error),
            f"DIFFERS: {t.problem}" if t.problem else "",
        ]
        for path, t in one.tensors.items()
    ]
    lines = [f"step {one.step} against {printable(str(one.file))}:"]
    lines += [f"  DIFFERS: {printable(problem)}" for problem in one.problems]
    if rows:
        head = ["<tensor", "<exact", "largest error", "error", "<"]
        lines += [f"  {line}" for line in table(head, rows)]
    return [*lines, ""]
