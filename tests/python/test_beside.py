"""Files written beside other work: the same bytes, and nothing lost by a failure."""

from __future__ import annotations

import gc
import os
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
from faults import ERRORS, Fault, Store, check_after_failure, interrupted, same_kind

# --- Work on another thread ----------------------------------------------------------------------


def test_work_is_done_in_order_on_one_other_thread() -> None:
    seen: list[int] = []
    threads = set()

    def work(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        seen.append(number)
        threads.add(threading.get_ident())
        return number * number

    waits = [beside.begin(lambda number=number: work(number)) for number in range(10)]  # type: ignore[misc]
    assert [wait() for wait in reversed(waits)] == [n * n for n in reversed(range(10))]
    assert waits[3]() == waits[3]() == 9
    assert seen == list(range(10))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_what_work_raises_is_raised_where_it_is_waited_for() -> None:
    waits = [beside.begin(lambda: 1 // 0), beside.begin(lambda: 7)]
    assert waits[1]() == 7
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            waits[0]()


def test_an_interrupted_wait_can_be_repeated() -> None:
    go = threading.Event()
    wait = beside.begin(lambda: go.wait(30))
    piece: Any = wait.__self__  # type: ignore[attr-defined]
    assert not piece._over
    with pytest.raises(KeyboardInterrupt):
        _interrupt_in(0.05, wait)
    go.set()
    assert wait() is True


def _interrupt_in(seconds: float, work: Callable[[], object]) -> None:
    import signal

    def send() -> None:
        time.sleep(seconds)
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.get_ident()
    sender = threading.Thread(target=send)
    sender.start()
    try:
        work()
    finally:
        sender.join()


def test_a_thread_s_helper_ends_with_it() -> None:
    helpers: list[threading.Thread] = []

    def use() -> None:
        helpers.append(beside.begin(threading.current_thread)())

    user = threading.Thread(target=use)
    user.start()
    user.join()
    assert helpers[0].daemon
    helpers[0].join(30)
    assert not helpers[0].is_alive()


def test_without_threads_work_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(beside, "_own", threading.local())
    begun: list[int] = []
    wait = beside.begin(lambda: begun.append(threading.get_ident()))
    assert begun == []
    wait()
    wait()
    assert begun == [threading.get_ident()]


def test_at_the_end_of_the_interpreter_work_is_put_off() -> None:
    code = """if True:
        import os
        from ckptz import beside
        class Last:
            def __del__(self, begin=beside.begin, write=os.write):
                write(1, b"%d" % begin(lambda: 7)())
        beside.begin(lambda: 1)()
        last = Last()
        """
    assert stores.run_python(code).stdout.strip() == "7"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_a_helper_of_its_own_and_waits_for_no_other() -> None:
    go = threading.Event()
    wait = beside.begin(lambda: go.wait(30))
    child = os.fork()
    if child == 0:
        good = False
        try:
            good = beside.begin(lambda: 5)() == 5
            wait()
        except OtherProcessError:
            os._exit(0 if good else 1)
        finally:
            os._exit(1)
    go.set()
    assert os.waitpid(child, 0)[1] == 0
    assert wait() is True


def descriptors() -> int:
    """Count what this process has open, without what others have forgotten."""
    gc.collect()
    return len(list(Path("/dev/fd").iterdir()))


# --- Writing -------------------------------------------------------------------------------------


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
        failed = True
        with fault.armed():
            try:
                manager.save(3, tree(3))
                failed = False
            except (OSError, KeyboardInterrupt) as error_found:
                found = error_found
        assert not failed or same_kind(found, fault.error)
        if failed and fault.fired == "write" and isinstance(found, OSError):
            assert found.filename == str(store.path)
        if not fault.fired:
            break
        fired.add(fault.fired)
        if not failed:
            store.save_done(manager, 3, tree(3))
        check_after_failure(store, manager, 3 if failed else 4, tree(3 if failed else 4))
        manager.close()
    assert not failed
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
