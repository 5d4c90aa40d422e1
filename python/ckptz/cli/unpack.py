"""`ckptz unpack`: a step of a store into a .safetensors or .npz file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, MissingSnapshotError
from ..keypath import from_text, glob
from ..messagepack import decode_values
from ..restore import OpenChain
from ..store import Entry
from ..view import Snapshot, TensorView
from .arguments import Commands, add_command, add_common, add_source, file_path, whole_number
from .console import Console
from .errors import UsageError
from .progress import Progress
from .report import Outcome, count, size
from .source import Source

__all__ = ["add_to", "run"]

_EPILOG = """\
examples:
  ckptz unpack run.store -o newest.safetensors
  ckptz unpack run.store --step 1500 -o 1500.npz
  ckptz unpack run.store --keys 'model*' -o model.safetensors
  ckptz unpack one.ckptz -o one.npz

Tensors keep the names that they had in a flat file; those of a nested state are named by their
key paths, `model/fc1.weight`. Plain values (numbers, text) have no place in such files and are
left out; `ckptz.CheckpointManager` restores them.
"""

_ROOT = "arr_0"  # as numpy.savez names an array without a name


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "unpack",
        run,
        "write a step as a .safetensors or .npz file",
        "Write a step (the newest by default) as a .safetensors or .npz file.",
        _EPILOG,
    )
    add_source(parser)
    parser.add_argument("--step", type=whole_number, metavar="N", help="which step")
    parser.add_argument(
        "--keys",
        action="append",
        metavar="GLOB",
        help="only tensors whose key path or name matches; `*` matches `/` too; may be repeated",
    )
    parser.add_argument(
        "-o", "--output", type=file_path, required=True, metavar="FILE", help=".safetensors or .npz"
    )
    add_common(parser)


def run(options: argparse.Namespace, console: Console) -> Outcome:
    """Unpack. Raises what the library raises, or `UsageError`."""
    if options.output.suffix.lower() not in (".safetensors", ".npz"):
        raise UsageError(f"{options.output}: the name must end in .safetensors or .npz")
    source = Source(options.source, console, options.threads)
    failed: Exception | None = None
    for entry in source.at(options.step):
        if not source.store.can_restore(entry):
            continue
        if failed is not None:
            console.note(f"warning: taking step {entry.meta.step}: {failed}")
        try:
            return _unpack(source, entry, options, console)
        except (FormatError, MissingSnapshotError) as error:
            source.store.mark_damaged(entry, error)
            failed = error
    raise failed or MissingSnapshotError(f"{source.path}: no snapshot here can be restored")


def _unpack(source: Source, entry: Entry, options: argparse.Namespace, console: Console) -> Outcome:
    chain = source.open(entry)
    with Snapshot(chain, as_numpy=True) as snapshot:
        tensors = _named(snapshot, options.keys)
        if not tensors and (options.keys or snapshot.plain):
            raise UsageError(f"{source.path}: {_nothing(options.keys)}")
        raw = sum(view.nbytes for view in tensors.values())
        metadata, left_out = _text_beside(chain), [] if options.keys else list(snapshot.plain)
        with console.progress("unpack", raw) as progress:
            _write(options.output, _Tensors(tensors, progress), metadata)
    if left_out:
        console.note(f"note: left out {count(len(left_out), 'plain value')}: {_some(left_out)}")
    document: dict[str, object] = {
        "source": str(source.path),
        "step": entry.meta.step,
        "file": str(options.output),
        "tensors": len(tensors),
        "raw_bytes": raw,
        "left_out": left_out,
    }
    what = f"step {entry.meta.step}, {count(len(tensors), 'tensor')}, {size(raw)}"
    return Outcome(document, [f"{options.output}: {what}"])


def _nothing(keys: list[str] | None) -> str:
    if not keys:
        return "the state holds no tensors"
    return f"no tensor's key path matches {' or '.join(keys)}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (", .." if len(names) > 4 else "")


def _named(snapshot: Snapshot, keys: list[str] | None) -> dict[str, TensorView]:
    """Return the tensors that are wanted, by the names that they get in a file.

    The keys themselves where the whole state is flat, so that a file that was packed has its
    own names again; else key paths, which cannot clash.
    """
    tests = [glob(pattern) for pattern in keys or ["*"]]
    paths = {path: from_text(path) for path in snapshot}
    flat = all(len(path) == 1 and isinstance(path[0], str) for path in paths.values())
    named = {}
    for path, parts in paths.items():
        name = str(parts[0]) if flat else path if parts else _ROOT
        if any(test(path) or test(name) for test in tests):
            named[name] = snapshot[path]
    return named


def _text_beside(chain: OpenChain) -> dict[str, str]:
    """Return the text that a packed .safetensors file held beside its tensors (`read_state`)."""
    found = {}
    for leaf in chain.schema.leaves(attributes=True):
        parts = from_text(leaf.path)
        if len(parts) == 2 and parts[0] is None and leaf.kind == "value":
            found[str(parts[1])] = decode_values([chain.values[leaf.number]])[0]
    return {key: text for key, text in found.items() if isinstance(text, str)}


class _Tensors(Mapping[str, Any]):
    """Tensors that are read, with progress, when a writer asks for their data."""

    def __init__(self, views: dict[str, TensorView], progress: Progress) -> None:
        self._views = views
        self._progress = progress

    def __getitem__(self, name: str) -> Any:
        return _Tensor(self._views[name], self._progress)

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


class _Tensor:
    def __init__(self, view: TensorView, progress: Progress) -> None:
        self.dtype, self.shape = view.dtype, view.shape
        self._view = view
        self._progress = progress

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        self._progress.note(self._view.path)
        array = self._view.__array__(dtype, copy)
        self._progress.advance(array.nbytes)
        return array


def _write(path: Path, tensors: _Tensors, metadata: dict[str, str]) -> None:
    from ..outputs import write_npz, write_safetensors

    if path.suffix.lower() == ".npz":
        write_npz(path, tensors)
    else:
        write_safetensors(path, tensors, metadata)
