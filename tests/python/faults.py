"""Faults of the system, injected into saves: one call of many fails, and what must hold then."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ckptz
import pytest
import stores
from trees import assert_same

CALLS = [
    (os, "open"),
    (os, "write"),
    (os, "fsync"),
    (os, "rename"),
    (os, "unlink"),
    (os, "close"),
    (os, "mkdir"),
    (os, "scandir"),
    (os, "fstat"),
    (os, "lstat"),
    (os, "preadv"),
    (fcntl, "flock"),
]


@dataclass
class Fault:
    """Lets the call with this number raise, before it takes effect or after; counts calls."""

    number: int
    error: BaseException
    after: bool = False
    calls: int = 0
    fired: str = ""
    names: list[str] = field(default_factory=list)

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            self.names.append(name)
            if self.calls != self.number:
                return real(*arguments, **options)
            self.fired = name
            if self.after:
                found = real(*arguments, **options)
                if name == "open":
                    os.close(found)
            raise self.error

        return call

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Count and fail calls of this block alone: no garbage of others is closed meanwhile."""
        gc.collect()
        gc.disable()
        try:
            with pytest.MonkeyPatch.context() as patch:
                for module, name in CALLS:
                    patch.setattr(module, name, self.wrap(name, getattr(module, name)))
                yield
        finally:
            gc.enable()


ERRORS: list[Callable[[], BaseException]] = [
    lambda: OSError(errno.ENOSPC, "No space left on device"),
    lambda: OSError(errno.EIO, "Input/output error"),
    KeyboardInterrupt,
]


def same_kind(found: BaseException, expected: BaseException) -> bool:
    """Whether an error is the one that was injected, or tells of it."""
    if isinstance(found, OSError) and isinstance(expected, OSError):
        return found.errno in (expected.errno, errno.EIO)
    return type(found) is type(expected)


@dataclass
class Store:
    """A store in which steps have been saved, and what must be restored of each."""

    path: Path
    states: dict[int, stores.State] = field(default_factory=dict)
    """As saved."""
    bases: dict[int, list[bytes]] = field(default_factory=dict)
    """As reconstructed."""

    def save(self, manager: ckptz.CheckpointManager, step: int, tree: stores.State) -> None:
        manager.save(step, tree)
        self.save_done(manager, step, tree)

    def save_done(self, manager: ckptz.CheckpointManager, step: int, tree: stores.State) -> None:
        """Take note of a step that has been saved."""
        self.states[step] = tree
        self.bases[step] = stores.base_of(manager)

    def check(self, maybe: int | None = None, tree: stores.State | None = None) -> bool:
        """Check what a fresh reader finds; `maybe` may be there, and then as saved."""
        if not self.path.is_dir():
            assert not self.states
            return False
        manager = ckptz.CheckpointManager(self.path, readonly=True)
        steps = manager.all_steps()
        more = {maybe} & set(steps) - set(self.states)
        seen = bool(more)
        assert set(steps) == more | set(self.states)
        assert steps == sorted(steps)
        if seen:
            assert_same(manager.restore(), tree)
        for step, base in self.bases.items():
            assert stores.arrays_of(manager.restore(step, residual=False)) == base
        if self.states and not seen:
            assert_same(manager.restore(), self.states[max(self.states)])
        assert manager.verify().ok
        return seen


def check_after_failure(
    store: Store, manager: ckptz.CheckpointManager, step: int, tree: stores.State
) -> None:
    """What must hold after the save of `step` has failed: nothing is lost, and the next works."""
    seen = store.check(step, tree)
    later = {name: array * 2 if name == "w" else array for name, array in tree.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manager.save(step + 1, later)
    assert not list(store.path.glob(".tmp-*"))
    assert stores.arrays_of(stores.fresh(store.path, residual=False)) == stores.base_of(manager)
    assert_same(stores.fresh(store.path), later)
    steps = sorted([*store.states, *([step] if seen else []), step + 1])
    assert manager.all_steps() == steps
    assert ckptz.CheckpointManager(store.path).all_steps() == steps
    assert manager.verify().ok


def save_with(
    fault: Fault, manager: ckptz.CheckpointManager, step: int, tree: stores.State
) -> BaseException | None:
    """Save while a call fails; return the error, which must be that of the call."""
    with fault.armed():
        try:
            manager.save(step, tree)
            return None
        except (OSError, KeyboardInterrupt) as error:
            found = error
    assert same_kind(found, fault.error)
    return found


def interrupted(work: Callable[[], object], number: int, event: str = "line") -> bool:
    """Whether there was a line (or opcode) of the package with this number; interrupts it there."""
    package = str(Path(ckptz.__file__).parent)
    seen = 0

    def trace(frame: Any, what: str, _: Any) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.startswith(package):
            return None
        frame.f_trace_opcodes = event == "opcode"
        seen += what == event
        if seen == number and what == event:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return seen >= number
