"""Object stores with rivals, lost answers, deadlines. The store is a fake."""

from __future__ import annotations

from collections.abc import Callable

import ckptz
import fake_objects
import pytest
from ckptz import CheckpointManager
from fake_objects import Bucket, GenericError
from object_stores import TREES, URL, begun, check, kinds
from trees import assert_same

# No warning either.
pytestmark = pytest.mark.filterwarnings("error")


# --- Two writers --------------------------------------------------------------------------------


def when(bucket: Bucket, what: str, then: Callable[[], object], start: str = "") -> None:
    """Let something happen before the next request of a kind."""

    def before(request: str, name: str) -> None:
        if request == what and name.startswith(start):
            bucket.before = fake_objects.nothing
            then()

    bucket.before = before


@pytest.mark.parametrize("at", ["close", "put", "list"])
def test_a_rival_commits_first(bucket: Bucket, at: str) -> None:
    mine, rival = begun(3), CheckpointManager(URL)
    when(bucket, at, lambda: rival.save(3, TREES[3]))
    if at == "list":
        # The refresh with which a save begins: nothing has been sent yet.
        with pytest.raises(ckptz.StoreLockedError):
            mine.save(9, TREES[9])
    else:
        with pytest.raises(
            ckptz.StoreLockedError, match="s3://bucket/run: another writer"
        ) as found:
            mine.save(9, TREES[9])
        assert isinstance(found.value, OSError)
    check(0, 1, 2, 3)
    assert kinds(bucket) == [*["commit"] * 4, *["part.ckptz"] * 4, "residual.ckptz"]
    # Saving again is to go on from what is there.
    mine.save(9, TREES[9])
    check(0, 1, 2, 3, 9)
    with pytest.raises(ckptz.StoreLockedError):
        rival.save(10, TREES[10])
    check(0, 1, 2, 3, 9)


def test_a_writer_that_comes_between_is_noticed(bucket: Bucket) -> None:
    mine, rival = begun(2), CheckpointManager(URL)
    rival.save(2, TREES[2])
    with pytest.raises(ckptz.StoreLockedError):
        mine.save(3, TREES[3])
    rival.save(3, TREES[3])
    rival.close()
    check(0, 1, 2, 3)


def test_a_rival_whose_commit_is_gone_again(bucket: Bucket) -> None:
    """Deleting old snapshots must not free their numbers for one who is late."""
    mine, rival = begun(3, full_every=1), CheckpointManager(URL, full_every=1)

    def far_ahead() -> None:
        rival.save(3, TREES[3])
        rival.save(4, TREES[4])
        entry = next(e for e in rival._store.entries.values() if e.meta.step == 3)
        for one in entry.files:
            rival._store.storage.remove(one.name)

    when(bucket, "close", far_ahead)
    with pytest.raises(ckptz.StoreLockedError):
        mine.save(9, TREES[9])
    check(0, 1, 2, 4)


def test_the_residual_of_a_rival_that_is_at_work_stays(bucket: Bucket) -> None:
    mine, rival = begun(3), CheckpointManager(URL)
    done: list[int] = []

    def save_all() -> None:
        # After my commit, before I delete old residuals, another one begins and ends.
        rival.save(4, TREES[4])
        done.append(4)

    when(bucket, "delete", save_all)
    mine.save(3, TREES[3])
    assert done == [4]
    check(0, 1, 2, 3, 4)


def test_parts_that_can_never_be_committed_are_deleted(bucket: Bucket) -> None:
    manager = begun(2)
    part = next(n for n in bucket.names() if n.startswith("0000000001") and ".part." in n)
    key = f"run/commit-{1:020d}.ckptz"
    data, commit = bucket.objects["run/" + part], bucket.objects.pop(key)
    manager.close()
    # A writer died after its part; another one took the number.
    other = CheckpointManager(URL)
    other.save(1, TREES[5])
    assert bucket.objects[key] != commit
    assert "run/" + part not in bucket.objects
    # One whose number nobody has may still be committed by a writer that is slow.
    bucket.objects["run/" + part] = data
    del bucket.objects[key]
    CheckpointManager(URL, readonly=True)
    assert "run/" + part in bucket.objects


# --- Answers that do not come -------------------------------------------------------------------


def failing(bucket: Bucket, number: int, after: bool, times: int = 1) -> list[str]:
    """Let requests from this number on fail, so many of them; returns which."""
    left, fired = [number, times], list[str]()

    def hook(what: str, name: str) -> None:
        left[0] -= 1
        if left[0] < 0 and left[1] > 0:
            left[1] -= 1
            fired.append(what)
            raise GenericError("HTTP error: error sending request")

    if after:
        bucket.after = hook
    else:
        bucket.before = hook
    return fired


def quiet(bucket: Bucket) -> None:
    bucket.before = bucket.after = fake_objects.nothing


RETRIED_HERE = {"list", "get", "get_range", "head", "put", "delete"}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_one_failure_at_each_request(bucket: Bucket, after: bool) -> None:
    """A save is as if nothing had been, or fails and leaves all as it was."""
    fates = set()
    for number in range(40):
        bucket.objects.clear()
        quiet(bucket)
        manager = begun(2, full_every=0)
        fired = failing(bucket, number, after)
        try:
            manager.save(2, TREES[2])
        except ckptz.NetworkError as error:
            fates.add("failed")
            said = str(error)
            quiet(bucket)
            # Those are tried again by obstore itself, which the fake does not do.
            assert fired[0] not in RETRIED_HERE
            assert "s3://bucket/run/" in said
            assert "could not write within 0.5 s" in said
            check(0, 1)
            manager.save(2, TREES[2])
        quiet(bucket)
        check(0, 1, 2)
        fates.update(fired)
        if not fired:
            break
    else:
        pytest.fail("a save of more requests than were tried")
    assert {"failed", "list", "close", "put", "delete"} <= fates


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_silence_from_each_request_on(
    bucket: Bucket, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that was acknowledged is lost, and what was not is there whole or not at all."""
    monkeypatch.setenv("CKPTZ_NETWORK_DEADLINE", "0.01")
    seen = set()
    for number in range(40):
        bucket.objects.clear()
        quiet(bucket)
        manager = begun(2, full_every=0)
        failing(bucket, number, after, times=10**9)
        try:
            manager.save(2, TREES[2])
        except ckptz.NetworkError:
            quiet(bucket)
        else:
            # Only what tidies up afterwards may fail without a word.
            assert bucket.requests[-1][0] in ("list", "delete", "get_range")
            quiet(bucket)
            check(0, 1, 2)
            break
        steps = CheckpointManager(URL, readonly=True).all_steps()
        seen.add(len(steps))
        check(*steps)
        manager.save(3, TREES[3])
        check(*steps, 3)
    # With the commit, or the answer to it, the snapshot is there.
    assert seen == {2, 3}


def test_an_answer_that_is_final_is_not_waited_for(bucket: Bucket) -> None:
    manager = begun(2)

    def deny(what: str, name: str) -> None:
        if what == "put":
            raise fake_objects.PermissionDeniedError("403 Forbidden\n\nDebug source:\nmuch")

    bucket.before = deny
    with pytest.raises(PermissionError, match="could not commit: 403 Forbidden") as found:
        manager.save(2, TREES[2])
    assert found.value.filename == f"{URL}/commit-{2:020d}.ckptz"
    assert len([1 for what, _ in bucket.requests if what == "put"]) == 3
    quiet(bucket)
    manager.save(2, TREES[2])
    check(0, 1, 2)


def test_reading_without_a_network_never_takes_an_older_snapshot(bucket: Bucket) -> None:
    begun(3)
    reader = CheckpointManager(URL, readonly=True)
    failing(bucket, 0, False, times=10**9)
    with pytest.raises(ckptz.NetworkError, match="could not read within"):
        reader.restore()
    with pytest.raises(ckptz.NetworkError, match="could not list the objects"):
        CheckpointManager(URL, readonly=True)
    quiet(bucket)
    assert_same(reader.restore(), TREES[2])
