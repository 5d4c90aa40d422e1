"""Deleting, collecting, pinning and merging: every call of the system fails in turn.

Whatever fails, every step that stays is restored bit for bit, by the same manager and by others;
and doing it again does what had been asked for.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import ckptz
import pytest
import stores
from ckptz import CheckpointManager
from faults import ERRORS, Fault, interrupted
from trees import assert_same

TREES = list(stores.training(24))
Operation = Callable[[CheckpointManager], object]


class Case:
    """A store and what is done to it."""

    def __init__(self, name: str, operation: Operation, gone: set[int], **options: Any) -> None:
        self.name, self.operation, self.gone, self.options = name, operation, gone, options

    def __repr__(self) -> str:
        return self.name

    def prepare(self, path: Path) -> dict[int, Any]:
        """Make the store: a rewind, dropped steps, a merged file, a pin, two full snapshots."""
        bases: dict[int, Any] = {}
        with CheckpointManager(path, full_every=5) as manager:
            for step in range(8):
                if step == 4:
                    manager.save(90, TREES[20])
                    manager.restore(3, rewind=True)
                manager.save(step, TREES[step])
                bases[step] = stores.base_of(manager)
                if step == 6:
                    manager.pin()
            manager.delete(2)
            manager.merge([1, 3])
            manager.delete(5)
            del bases[2], bases[5]
        return bases


CASES = [
    Case("delete-needed", lambda m: m.delete(0), {0}),
    Case("delete-merged", lambda m: m.delete(3), {3}),
    Case("delete-newest", lambda m: m.delete(7), {7}),
    Case("gc", lambda m: m.gc(), set()),
    Case("rules", lambda m: m.gc(), {0, 1, 3, 4}, max_to_keep=2),
    Case("pin", lambda m: m.pin(4), set()),
    Case("unpin", lambda m: m.unpin(6), set()),
    Case("merge", lambda m: m.merge(), set()),
    Case("merge-some", lambda m: m.merge([0, 4, 7]), set()),
]


def check_steps(path: Path, bases: dict[int, Any], gone: set[int], exact: set[int]) -> None:
    """Check what a fresh reader finds: all that stays, and of the others each whole or not."""
    reader = CheckpointManager(path, readonly=True)
    steps = set(reader.all_steps())
    assert bases.keys() - gone <= steps <= bases.keys()
    for step in steps:
        assert stores.arrays_of(reader.restore(step, residual=False)) == bases[step], step
    for step in exact & steps:
        assert_same(reader.restore(step), TREES[step])
    assert reader.verify().problems == []


@pytest.fixture(scope="module", params=CASES, ids=repr)
def prepared(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A case, its store, what was saved, and what is there when nothing has failed."""
    case: Case = request.param
    path = tmp_path_factory.mktemp(case.name)
    with stores.clock():
        bases = case.prepare(path / "before")
    shutil.copytree(path / "before", path / "after")
    with CheckpointManager(path / "after", **case.options) as manager:
        case.operation(manager)
        assert manager.all_steps() == sorted(bases.keys() - case.gone)
    exact = {6, 7} - case.gone - ({6} if case.name == "unpin" else set())
    check_steps(path / "after", bases, case.gone, exact)
    return case, path, bases, exact


def finish(case: Case, path: Path, manager: CheckpointManager, after: dict[str, bytes]) -> None:
    """Do it again, where that is needed; the store is then what it would have been."""
    for one in (manager, None):
        if one is None:
            manager.close()
            one = CheckpointManager(path, **case.options)
        if set(one.all_steps()) & case.gone or not case.gone:
            try:
                case.operation(one)
            except ckptz.MissingSnapshotError:
                assert case.gone
        elif case.name.startswith("delete"):
            one.gc()
        if case.name.startswith("merge"):
            one.gc()  # has nothing to do, or deletes what the merge has left
        one.close()
    found = stores.files(path)
    if case.name.startswith("delete"):
        # `gc` goes further than `delete`: off the line nothing stays.
        assert found.keys() <= after.keys()
    else:
        assert found == after


WAYS = list(itertools.product(ERRORS, [False, True]))


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("shift", range(len(WAYS)) if stores.SLOW else [0])
def test_every_call_fails(prepared: Any, tmp_path: Path, shift: int) -> None:
    """Each in one way, before it takes effect or after; with CKPTZ_SLOW=1 in every way."""
    case, source, bases, exact = prepared
    expected = stores.files(source / "after")
    if case.name.startswith("merge"):
        shutil.copytree(source / "after", tmp_path / "after")
        with CheckpointManager(tmp_path / "after") as manager:
            manager.gc()
        expected = stores.files(tmp_path / "after")
    fired = set()
    for number in count(1):
        path = tmp_path / str(number)
        shutil.copytree(source / "before", path)
        manager = CheckpointManager(path, **case.options)
        error, after = WAYS[(number + shift) % len(WAYS)]
        fault = Fault(number, error(), after)
        failed = True
        with fault.armed():
            try:
                case.operation(manager)
                failed = False
            except (OSError, KeyboardInterrupt) as found:
                assert type(found) is type(fault.error)  # noqa: PT017
        if not fault.fired:
            break
        fired.add(fault.fired)
        check_steps(path, bases, case.gone, exact)
        finish(case, path, manager, expected)
        if number % 5 == 0:  # what is there now has been checked once, byte for byte the same
            check_steps(path, bases, case.gone, exact)
        shutil.rmtree(path)
    assert not failed
    assert {"open", "fsync", "scandir", "flock"} <= fired


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_line(prepared: Any, tmp_path: Path) -> None:
    case, source, bases, exact = prepared
    stride = max(1, 83 // stores.MORE)
    for number in range(1 + len(case.name), 1_000_000, stride):
        path = tmp_path / str(number)
        shutil.copytree(source / "before", path)
        manager = CheckpointManager(path, **case.options)
        was = sys.gettrace()
        if not interrupted(lambda: case.operation(manager), number):  # noqa: B023
            break
        assert sys.gettrace() is was
        check_steps(path, bases, case.gone, exact)
        manager.save(30, TREES[23])
        check_steps(path, {**bases, 30: stores.base_of(manager)}, case.gone, exact - {7})
        manager.close()
        shutil.rmtree(path)
    assert number > 100


def test_calls_come_in_the_order_that_makes_them_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletion only after the replacement is durable; marks before, children before parents."""
    from ckptz.storage import Writer, files, local

    events: list[str] = []
    manager = CheckpointManager(tmp_path, full_every=4)
    for step in range(6):
        manager.save(step, TREES[step])
    manager.close()
    manager = CheckpointManager(tmp_path, max_to_keep=1, full_every=4)
    sync, rename, unlink = Writer.sync, Writer.rename, Path.unlink

    def noting(name: str, real: Callable[..., Any], shown: Callable[..., str]) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            found = real(*arguments, **options)
            if shown(*arguments) != "":
                events.append(f"{name} {shown(*arguments)}")
            return found

        return call

    def short(path: Any) -> str:
        name = Path(str(path)).name
        if name.startswith(".tmp-"):
            return ""
        return name[:10].lstrip("0").rjust(1, "0") + "".join(Path(name).suffixes)

    monkeypatch.setattr(Writer, "sync", noting("sync", sync, lambda w: "file"))
    monkeypatch.setattr(Writer, "rename", noting("rename", rename, lambda w, name: short(name)))
    monkeypatch.setattr(Path, "unlink", noting("unlink", unlink, lambda p, **_: short(p)))
    monkeypatch.setattr(
        local, "sync_directory", noting("sync", files.sync_directory, lambda _: "directory")
    )
    manager.gc()
    assert [event for event in events if event != "sync directory"] == [
        "sync file",
        "rename 4.hidden",
        "unlink 3.ckptz",
        "unlink 2.ckptz",
        "unlink 1.ckptz",
        "unlink 0.ckptz",
    ]
    assert events[events.index("unlink 3.ckptz") - 1] == "sync directory"
    assert events[-1] == "sync directory"
    for step in (6, 7):
        manager.save(step, TREES[step])
    events.clear()
    manager.merge()
    names = [event for event in events if event.startswith(("sync", "rename", "unlink"))]
    names = names[names.index("sync file") :]
    assert names[:3] == ["sync file", "rename 7.merged.ckptz", "sync directory"]
    # The marks go last: the merged file hides what they hid.
    marks = [event for event in names if event.endswith(".hidden")]
    assert marks == ["unlink 5.hidden", "unlink 6.hidden"]
    assert names[-len(marks) - 2 : -1] == ["sync directory", *marks]
