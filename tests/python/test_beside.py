"""Work on another thread, beside other work."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import stores
from ckptz import beside
from ckptz.errors import OtherProcessError


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
