"""Stores in a real S3 server: restarts of it, throttling, lost answers, rivals, many processes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ckptz
import cli_tools
import pytest
import s3
import stores
from ckptz import CheckpointManager
from s3 import LOSE, PASS, RESET, THROTTLE, Line, Server
from trees import assert_same

pytest.importorskip("obstore", reason="needs obstore: pip install obstore")
pytestmark = s3.needs_server

TREES = list(stores.training(12))
# Two parts each, coded exactly.
BIG = [{"w": stores.weights(step, (2_200_000,)), "step": step} for step in range(3)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


@pytest.fixture
def line(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    line = Line(server)
    for name, value in s3.environment(line.port).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("ckptz.storage.network._LONGEST_PAUSE", 0.3)
    # The least that S3 allows.
    monkeypatch.setattr("ckptz.storage.objects._PART", 5 << 20)
    yield line
    line.close()


@pytest.fixture
def url(line: Line, request: pytest.FixtureRequest) -> str:
    return f"s3://bucket/{request.node.name.replace('[', '-').rstrip(']')}"


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ckptz.CkptzWarning)
        yield


def whole(url: str) -> CheckpointManager:
    """Saves every snapshot in full."""
    return CheckpointManager(url, policy="exact", full_every=1)


def check(url: str, states: dict[int, Any]) -> None:
    reader = CheckpointManager(url, readonly=True)
    assert reader.all_steps() == sorted(states)
    assert reader.verify().ok
    assert_same(reader.restore(), states[max(states)])


def names(manager: CheckpointManager) -> list[str]:
    return [one.name for one in manager._store.storage.names()]


def on(method: str, part: str, fate: str, times: int = 1) -> s3.Plan:
    """Do this to the first requests of a kind."""
    left = itertools.count(times, -1)

    def plan(found: str, path: str) -> str:
        return fate if found == method and part in path and next(left) > 0 else PASS

    return plan


def test_a_run(url: str) -> None:
    bases = []
    with CheckpointManager(url, full_every=4) as manager:
        for step in range(10):
            manager.save(step, TREES[step])
            bases.append(stores.base_of(manager))
    check(url, dict(enumerate(TREES[:10])))
    reader = CheckpointManager(url, readonly=True)
    for step, base in enumerate(bases):
        assert stores.arrays_of(reader.restore(step, residual=False)) == base
    with CheckpointManager(url) as manager:
        assert_same(manager.restore(9, rewind=True), TREES[9])
        manager.save(10, TREES[10])
    check(url, dict(enumerate(TREES[:11])))


def test_large_files(url: str, line: Line) -> None:
    """In several parts each, and read by ranges."""
    with whole(url) as manager:
        for step, tree in enumerate(BIG):
            manager.save(step, tree)
    assert any("partNumber=2" in path for _, path, _ in line.requests)
    check(url, dict(enumerate(BIG)))
    line.requests.clear()
    with CheckpointManager(url, readonly=True).open(0) as snapshot:
        found = snapshot["w"][1_000_000:1_000_100].tobytes()
    assert found == BIG[0]["w"][1_000_000:1_000_100].tobytes()


@pytest.mark.parametrize("method", ["PUT", "GET", "POST"])
def test_throttling(url: str, line: Line, method: str) -> None:
    """503 SlowDown, three times in a row, now and again."""
    turn = itertools.count()

    def plan(found: str, path: str) -> str:
        return THROTTLE if found == method and next(turn) % 5 < 3 else PASS

    line.plan = plan
    with whole(url) as manager:
        for step, tree in enumerate(BIG[:2]):
            manager.save(step, tree)
    check(url, dict(enumerate(BIG[:2])))
    assert line.count(THROTTLE) >= 3


@pytest.mark.parametrize("fate", [LOSE, RESET])
@pytest.mark.parametrize(
    ("method", "part"),
    [
        ("PUT", "/commit-0"),
        ("PUT", ".part.ckptz"),
        ("PUT", "partNumber=1"),
        ("POST", "uploads"),
        ("POST", "uploadId"),
        ("GET", "list-type"),
        ("GET", ".part.ckptz"),
    ],
)
def test_one_lost(url: str, line: Line, method: str, part: str, fate: str) -> None:
    """The request or its answer is lost once: nobody notices."""
    big = "pload" in part or "Number" in part
    manager, trees = (whole(url), BIG) if big else (CheckpointManager(url), TREES)
    manager.save(0, trees[0])
    line.plan = on(method, part, fate)
    if method == "GET":
        assert_same(CheckpointManager(url).restore(), trees[0])
    manager.save(1, trees[1])
    assert line.count(fate) == 1
    line.plan = lambda method, path: PASS
    check(url, {0: trees[0], 1: trees[1]})
    # No second commit, nothing left over: two commits and parts, perhaps a residual.
    assert len([n for n in names(manager) if ".residual." not in n]) == 4


@pytest.mark.parametrize("fate", [LOSE, RESET, THROTTLE])
def test_no_answer_to_a_commit(
    url: str, line: Line, fate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the deadline a typed error says what and where; what had been saved is there."""
    monkeypatch.setenv("CKPTZ_NETWORK_DEADLINE", "1")
    manager = CheckpointManager(url)
    manager.save(0, TREES[0])
    line.plan = on("PUT", "/commit-0", fate, times=10**9)
    if fate != LOSE:
        with pytest.raises(ckptz.NetworkError, match="could not commit within 1 s") as found:
            manager.save(1, TREES[1])
        assert found.value.filename == f"{url}/commit-{1:020d}.ckptz"
        line.plan = lambda method, path: PASS
        check(url, {0: TREES[0]})
        manager.save(1, TREES[1])
    else:
        # The put that is sent again is refused, and what is there tells that it was the first.
        manager.save(1, TREES[1])
    line.plan = lambda method, path: PASS
    check(url, {0: TREES[0], 1: TREES[1]})


@pytest.mark.parametrize(
    "at", ["partNumber=1", "partNumber=2", "uploadId", "/commit-0", "list-type"]
)
def test_the_server_is_restarted_in_mid_save(url: str, line: Line, server: Server, at: str) -> None:
    manager = whole(url)
    manager.save(0, BIG[0])
    again: list[threading.Thread] = []
    several = threading.Lock()

    def plan(method: str, path: str) -> str:
        with several:
            if not again and at in path and (at != "uploadId" or method == "POST"):
                again.append(threading.Thread(target=server.restart))
                again[0].start()
        return PASS

    line.plan = plan
    manager.save(1, BIG[1])
    assert again
    again[0].join()
    line.plan = lambda method, path: PASS
    check(url, dict(enumerate(BIG[:2])))
    manager.save(2, BIG[2])
    check(url, dict(enumerate(BIG)))


def test_restarts_all_the_while(url: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves and restores go on through restarts, one after another."""
    monkeypatch.setenv("CKPTZ_NETWORK_DEADLINE", "200")
    done, times = threading.Event(), itertools.count()

    def restarting() -> None:
        while not done.wait(2):
            server.restart(0.1)
            next(times)

    restarter = threading.Thread(target=restarting)
    restarter.start()
    try:
        with CheckpointManager(url, full_every=3) as manager:
            for step, tree in enumerate(TREES[:5]):
                manager.save(step, tree)
                assert_same(CheckpointManager(url, readonly=True).restore(), tree)
    finally:
        done.set()
        restarter.join()
    assert next(times) > 0
    check(url, dict(enumerate(TREES[:5])))


def test_a_server_that_stays_away(
    url: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPTZ_NETWORK_DEADLINE", "1")
    manager = whole(url)
    manager.save(0, BIG[0])
    server.stop()
    try:
        for use in (lambda: manager.save(1, BIG[1]), manager.restore, manager.reload):
            with pytest.raises(ckptz.NetworkError, match=f"within 1 s.*{url}"):
                use()
    finally:
        server.start()
    check(url, {0: BIG[0]})
    manager.save(1, BIG[1])
    check(url, dict(enumerate(BIG[:2])))


def test_two_writers_at_once(url: str, line: Line) -> None:
    """Both send their commit of one number at the same moment: one of them is refused."""
    first, second = (CheckpointManager(url) for _ in range(2))
    first.save(0, TREES[0])
    first.close()
    first = CheckpointManager(url)
    both = threading.Barrier(2, timeout=30)

    def plan(method: str, path: str) -> str:
        if method == "PUT" and f"commit-{1:020d}" in path:
            both.wait()
        return PASS

    line.plan = plan
    outcomes: dict[int, BaseException | None] = {}

    def save(manager: CheckpointManager, step: int) -> None:
        try:
            manager.save(step, TREES[step])
            outcomes[step] = None
        except BaseException as error:
            outcomes[step] = error

    pairs = [(first, 1), (second, 2)]
    savers = [threading.Thread(target=save, args=pair) for pair in pairs]
    for saver in savers:
        saver.start()
    for saver in savers:
        saver.join()
    line.plan = lambda method, path: PASS
    won = [step for step, error in outcomes.items() if error is None]
    lost = [error for error in outcomes.values() if error is not None]
    assert len(won) == len(lost) == 1
    assert isinstance(lost[0], ckptz.StoreLockedError)
    check(url, {0: TREES[0], won[0]: TREES[won[0]]})


WRITER = """
import sys, ckptz, stores
url, own = sys.argv[1], int(sys.argv[2])
trees = list(stores.training(30))
manager = ckptz.CheckpointManager(url, threads=1)
for _ in range(10):
    manager.reload()
    step = max(manager.all_steps(), default=-1) + 1
    try:
        manager.save(step, trees[step])
    except (ckptz.StoreLockedError, ckptz.StepExistsError, ckptz.StepOrderError):
        continue
    print(step, manager._store.entries[manager._writer._base.entry.id].id.hex())
"""


def test_writers_in_several_processes(url: str) -> None:
    """Whatever one of them was told is saved is there, and nothing else."""
    command = [sys.executable, "-c", WRITER, url]
    writers = [
        subprocess.Popen(
            [*command, str(own)], stdout=subprocess.PIPE, text=True, env=stores.environment()
        )
        for own in range(3)
    ]
    told = {}
    for writer in writers:
        out, _ = writer.communicate(timeout=300)
        assert writer.returncode == 0
        for step, found in map(str.split, out.splitlines()):
            assert step not in told
            told[step] = found
    manager = CheckpointManager(url)
    assert {e.id.hex() for e in manager._store.entries.values()} == set(told.values())
    assert manager.all_steps() == sorted(map(int, told))
    assert manager.verify().ok
    last = manager.all_steps()[-1]
    assert_same(manager.restore(), list(stores.training(30))[last])


def test_the_command_line(url: str, tmp_path: Path) -> None:
    cli_tools.write_run(tmp_path / "run", [10, 20, 30])
    ran = cli_tools.run("pack", tmp_path / "run", "-o", url, "--json")
    assert ran.code == 0, ran
    assert ran.document["store"] == url
    assert [row["step"] for row in cli_tools.run("ls", url, "--json").document["steps"]] == [
        10,
        20,
        30,
    ]
    assert cli_tools.run("info", url, "--json").document["kind"] == "store"
    assert url in cli_tools.run("verify", url).out
    ran = cli_tools.run("unpack", url, "--step", 30, "-o", tmp_path / "30.safetensors")
    assert ran.code == 0, ran
    original = cli_tools.load(tmp_path / "run" / "30.safetensors")
    assert cli_tools.same(cli_tools.load(tmp_path / "30.safetensors"), original)
    copy, back = f"{url}-copy", tmp_path / "back"
    for one, other in ((url, copy), (copy, back)):
        assert cli_tools.run("cp", one, other).code == 0
    check(copy, {10: None, 20: None, 30: None} | {30: CheckpointManager(url).restore()})
    assert_same(CheckpointManager(back).restore(), CheckpointManager(url).restore())


@pytest.mark.parametrize("fate", [THROTTLE, RESET, LOSE])
def test_copying_over_a_bad_line(url: str, line: Line, tmp_path: Path, fate: str) -> None:
    with CheckpointManager(tmp_path / "here") as manager:
        for step, tree in enumerate(BIG):
            manager.save(step, tree)
    turn = itertools.count()
    line.plan = lambda method, path: fate if next(turn) % 4 == 1 else PASS
    outcomes = [cli_tools.run("cp", tmp_path / "here", url).code for _ in range(8)]
    assert 0 in outcomes
    assert set(outcomes) <= {0, 3}
    line.plan = lambda method, path: PASS
    check(url, dict(enumerate(BIG)))
