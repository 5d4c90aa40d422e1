"""Saves that write beside coding: the same bytes, and nothing lost by a failure or a fork."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from ckptz import beside, encode
from ckptz.errors import OtherProcessError
from ckptz.storage.files import Writer
from faults import ERRORS, Fault, Store, check_after_failure, interrupted, save_with
from trees import assert_same


def descriptors() -> int:
    """Count what this process has open, without what others have forgotten."""
    gc.collect()
    return len(list(Path("/dev/fd").iterdir()))


def test_a_write_goes_on_into_its_own_file_after_that_is_given_up(tmp_path: Path) -> None:
    data = np.arange(100, dtype=np.uint8)
    held = threading.Event()
    real = os.write
    before = descriptors()
    writer = Writer(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", lambda fd, view: held.wait(30) and real(fd, view))
        wait = writer.begin(data)
        descriptor = writer._descriptor
        writer.discard()
        with (tmp_path / "other").open("xb") as other:
            assert other.fileno() != descriptor, "the number is not given away yet"
            held.set()
            assert wait() == 100
    del wait
    assert descriptors() == before
    assert (tmp_path / "other").read_bytes() == b""
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_write_that_nobody_waits_for_leaves_no_descriptor_open(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    before = descriptors()
    writer.begin(np.ones(10, np.uint8))()
    assert descriptors() == before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ckptz.storage.files.begin", lambda work: work)
        writer.begin(np.ones(10, np.uint8))  # put off, and forgotten
    assert descriptors() == before
    writer.discard()


def tree(step: int) -> stores.State:
    noise = stores.weights(step, (64, 300)) * np.float32(0.01)
    return {"w": stores.weights(1000, (64, 300)) + noise, "n": np.arange(step), "step": step}


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Has a save fill the room for coded bytes many times; yields how much was written beside."""
    begun: list[int] = []
    real = Writer.begin

    def counting(self: Writer, data: Any) -> Callable[[], int]:
        begun.append(data.size)
        return real(self, data)

    monkeypatch.setattr(encode, "_OUT_BYTES", 5000)
    monkeypatch.setattr(encode, "_buffers", threading.local())
    monkeypatch.setattr(Writer, "begin", counting)
    yield begun
    # Before the room is as it was.
    beside.begin(lambda: None)()


def with_three(path: Path, **options: Any) -> tuple[Store, ckptz.CheckpointManager]:
    store = Store(path / "store")
    manager = ckptz.CheckpointManager(store.path, threads=2, **options)
    for step in range(3):
        store.save(manager, step, tree(step))
    return store, manager


@pytest.mark.parametrize("exact", ["none", "latest"])
def test_files_are_the_same_as_with_one_thread(
    tmp_path: Path, little_room: list[int], exact: Any
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: 1)
        for threads in (1, 2):
            with ckptz.CheckpointManager(
                tmp_path / str(threads), threads=threads, exact=exact
            ) as manager:
                for step in range(4):
                    manager.save(step, tree(step))
            assert bool(little_room) == (threads == 2)
    assert len(little_room) > 15
    assert stores.files(tmp_path / "1") == stores.files(tmp_path / "2")


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("error", ERRORS, ids=["ENOSPC", "EIO", "interrupt"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_every_call_of_a_save_fails(
    tmp_path: Path, little_room: list[int], error: Callable[[], BaseException], after: bool
) -> None:
    fired = set()
    for number in count(1, 1 if stores.MORE > 1 else 3):
        store, manager = with_three(tmp_path / str(number))
        fault = Fault(number, error(), after)
        found = save_with(fault, manager, 3, tree(3))
        if fault.fired == "write" and isinstance(found, OSError):
            assert found.filename == str(store.path)
        if not fault.fired:
            break
        fired.add(fault.fired)
        if found is None:
            store.save_done(manager, 3, tree(3))
        next_step = 4 if found is None else 3
        check_after_failure(store, manager, next_step, tree(next_step))
        manager.close()
    assert found is None
    assert fired >= {"write", "close"}
    assert fault.names.count("write") >= 15


@pytest.mark.filterwarnings("ignore::ckptz.CkptzWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_line(tmp_path: Path, little_room: list[int]) -> None:
    stride = max(1, 67 // stores.MORE)
    for number in range(5, 1_000_000, stride):
        store, manager = with_three(tmp_path / str(number))
        if not interrupted(lambda: manager.save(3, tree(3)), number):  # noqa: B023
            break
        check_after_failure(store, manager, 3, tree(3))
        manager.close()
    assert number > 500


def test_an_error_of_the_progress_callback_waits_for_what_is_written(
    tmp_path: Path, little_room: list[int]
) -> None:
    store, manager = with_three(tmp_path)

    def progress(_: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError):
        manager.save(3, tree(3), progress=progress)
    check_after_failure(store, manager, 3, tree(3))


@pytest.mark.parametrize("threads", [1, 2])
def test_something_else_may_be_saved_from_the_callback(
    tmp_path: Path, little_room: list[int], threads: int
) -> None:
    other = {"b": np.random.default_rng(1).integers(0, 256, 30_000, dtype=np.uint8)}
    real = os.write

    def slowly(descriptor: int, data: Any) -> int:
        time.sleep(0.001)
        return real(descriptor, data)

    with pytest.MonkeyPatch.context() as patch:
        # So that what is written beside is still under way when the callback comes.
        patch.setattr(os, "write", slowly)
        with ckptz.CheckpointManager(tmp_path / "store", threads=threads) as manager:
            for step in range(3):
                manager.save(
                    step,
                    tree(step),
                    progress=lambda _: ckptz.save_file(other, tmp_path / "f", threads=threads),
                )
                assert_same(manager.restore(), tree(step))
                assert_same(ckptz.load_file(tmp_path / "f"), other)
            assert manager.verify().ok


@pytest.mark.parametrize("threads", [1, 2])
def test_something_else_may_be_saved_by_a_signal_s_handler(tmp_path: Path, threads: int) -> None:
    rng = np.random.default_rng(2)
    state = {"a": rng.standard_normal(3_000_000, dtype=np.float32)}
    other = {"b": rng.integers(0, 256, 1_000_000, dtype=np.uint8)}
    handled: list[int] = []
    saving: list[int] = []

    def handler(*_: object) -> None:
        ckptz.save_file(other, tmp_path / "f", threads=threads)
        handled.append(1)
        if saving:
            # Not sooner: the handler's own save would be interrupted, and so on.
            signal.setitimer(signal.ITIMER_REAL, 0.002)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for round_ in range(5):
            with ckptz.CheckpointManager(tmp_path / str(round_), threads=threads) as manager:
                saving.append(round_)
                signal.setitimer(signal.ITIMER_REAL, 0.002)
                try:
                    manager.save(1, state)
                finally:
                    saving.clear()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                assert_same(manager.restore(), state)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert handled


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("how", ["return", "raise"])
def test_a_child_that_is_forked_in_the_callback_leaves_the_save_alone(
    tmp_path: Path, little_room: list[int], threads: int, how: str
) -> None:
    children: list[int] = []
    with ckptz.CheckpointManager(tmp_path / "store", threads=threads) as manager:

        def fork(_: int) -> None:
            if not children:
                children.append(os.fork())
                if children[0] == 0 and how == "raise":
                    raise LookupError

        try:
            manager.save(0, tree(0), progress=fork)
        except BaseException as error:
            expected = LookupError if how == "raise" else OtherProcessError
            if children == [0]:
                os._exit(0 if isinstance(error, expected) else 1)
            raise
        if children == [0]:
            os._exit(2)
        assert os.waitpid(children[0], 0)[1] == 0
        assert_same(manager.restore(), tree(0))
        assert manager.verify().ok
