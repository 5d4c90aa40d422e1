"""A restored step against the file that it was packed from, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from ..bounds import check_bounds
from ..closing import Closing
from ..errors import BoundError, FormatError, MissingSnapshotError
from ..layers import identity
from ..messagepack import encode_values
from ..policy import Rule
from ..restore import OpenChain
from ..schema import Schema, TensorNode
from ..state import flatten
from ..stats import SnapshotStats, snapshot_stats
from ..store import Entry
from .difference import Difference, measure
from .source import Source
from .steps import read_state

__all__ = ["Compared", "compare"]


@dataclass(slots=True)
class Compared:
    """What comparing a step with a file found."""

    step: int
    file: Path
    tensors: dict[str, Difference] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing differs that should not."""
        return not self.problems and not any(t.problem for t in self.tensors.values())


def compare(source: Source, step: int, path: Path, progress: Callable[[int], None]) -> Compared:
    """Compare a step with a file. Raises for a file that cannot be read; damage is reported."""
    found = Compared(step, path)
    file = _File(path)
    entries = source.store.steps().get(step)
    if not entries:
        found.problems.append(f"step {step} cannot be restored, or was never saved")
        return found
    try:
        with _Step(source, entries[0]) as restored:
            found.problems += _differing_values(restored.chain, file)
            for name, difference in _tensors(restored, file):
                found.tensors[name] = difference
                progress(file.tensors[name][1].nbytes if name in file.tensors else 0)
    except (FormatError, MissingSnapshotError) as error:
        found.problems.append(str(error))
    return found


class _File:
    """The tensors and plain values of a user's file by key path."""

    def __init__(self, path: Path) -> None:
        flat = flatten(read_state(path))
        schema = Schema.parse(flat.schema)
        self.tensors: dict[str, tuple[TensorNode, NDArray[Any]]] = {}
        for leaf in schema.leaves(attributes=True):
            if leaf.kind != "value":
                self.tensors[leaf.path] = schema.tensors[leaf.number], flat.arrays[leaf.number]
        self.values = _values(schema, encode_values(flat.values))


def _values(schema: Schema, packed: list[Any]) -> dict[str, bytes]:
    """Return plain values by key path, in a form that tells 1 from True and finds NaN equal."""
    return {
        leaf.path: msgspec.msgpack.encode(packed[leaf.number])
        for leaf in schema.leaves(attributes=True)
        if leaf.kind == "value"
    }


class _Step(Closing):
    """A step, open, and the snapshot that its records were coded against."""

    def __init__(self, source: Source, entry: Entry) -> None:
        store = source.store
        self._open = ExitStack()
        try:
            self.stats: SnapshotStats = snapshot_stats(store, entry)
            self.chain = self._open.enter_context(source.open(entry))
            parent = store.entries.get(entry.meta.parent or b"")
            self._before = self._bare = None
            self._policy = store.policy(entry)
            if parent is not None:
                self._before = self._open.enter_context(source.open(parent, residual=False))
            rules = () if self._policy is None else self._policy.rules
            if self.chain.residual is not None and any(rule.is_bounded for rule in rules):
                self._bare = self._open.enter_context(source.open(entry, residual=False))
        except BaseException:
            self._open.close()
            raise
        nodes = () if self._before is None else self._before.schema.tensors
        self._old = {identity(node): number for number, node in enumerate(nodes)}
        self.tensors = {
            leaf.path: leaf.number
            for leaf in self.chain.schema.leaves(attributes=True)
            if leaf.kind != "value"
        }

    def node(self, name: str) -> TensorNode:
        """Return what is known of a tensor."""
        return self.chain.schema.tensors[self.tensors[name]]

    def is_exact(self, name: str) -> bool:
        """Whether a tensor must be as it was saved, bit for bit."""
        record = self.stats.tensors[self.node(name).path]
        lossy = record.lossy or (record.link is not None and self.stats.tensors[record.link].lossy)
        # One that is left as it was (`Rule(every=..)`) is what it was, not what was saved.
        return self.chain.residual is not None or not (lossy or record.age)

    def read(self, name: str) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return a tensor, and what it was in the snapshot before."""
        restored = self.chain.arrays([self.tensors[name]])[0]
        number = self._old.get(identity(self.node(name)))
        if self._before is None or number is None:
            return restored, None
        return restored, self._before.arrays([number])[0]

    def bounds_of(self, name: str) -> Rule | None:
        """Return the rule that bounds a tensor's error, if one does in this snapshot."""
        node = self.node(name)
        number = None if self._policy is None else self._policy.match(name)
        if self._policy is None or number is None or node.element_type == "bytes":
            return None
        stale = self.stats.tensors[node.path].age > 0
        rule = self._policy.rules[number]
        return rule if rule.is_bounded and not stale else None

    def reconstruction(self, name: str, restored: NDArray[Any]) -> NDArray[Any]:
        """Return what a tensor is without the residual."""
        if self._bare is None:
            return restored
        return self._bare.arrays([self.tensors[name]])[0]

    def close(self) -> None:
        """Close the files."""
        self._open.close()


def _differing_values(chain: OpenChain, file: _File) -> list[str]:
    stored = _values(chain.schema, chain.values)
    return [
        f"plain value {path}: "
        + ("not in the file" if path not in file.values else "not in the store")
        if path not in stored or path not in file.values
        else f"plain value {path}: differs"
        for path in {**stored, **file.values}
        if stored.get(path) != file.values.get(path)
    ]


def _tensors(step: _Step, file: _File) -> Iterator[tuple[str, Difference]]:
    """Yield the differences of the tensors that either has."""
    for name in step.tensors:
        node, exact = step.node(name), step.is_exact(name)
        if name not in file.tensors:
            yield name, Difference(exact, problem="is not in the file")
            continue
        in_file, array = file.tensors[name]
        here, there = (f"{n.dtype} {list(n.shape)}" for n in (node, in_file))
        if here != there:
            yield name, Difference(exact, problem=f"is {here}, in the file {there}")
            continue
        restored, before = step.read(name)
        difference = measure(restored, before, array, exact)
        rule = step.bounds_of(name)
        if rule is not None and difference.problem is None:
            try:
                check_bounds(rule, name, step.reconstruction(name, restored), array)
            except BoundError as error:
                difference.problem = str(error).removeprefix(f"{name}: ")
        yield name, difference
    for name in file.tensors:
        if name not in step.tensors:
            yield name, Difference(True, problem="is not in the store")
