"""Dropping, pinning and merging snapshots that are parts with commits; copies of such stores."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ckptz
import fake_objects
import pytest
import stores
from ckptz import CheckpointManager
from ckptz.storage import open_storage
from ckptz.transfer import copy_store
from cli_tools import run
from fake_objects import Bucket, GenericError
from test_merge import check_plain

URL = "s3://bucket/run"
TREES = list(stores.training(12))
Bases = dict[int, list[bytes]]


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def train(steps: int, **options: Any) -> tuple[CheckpointManager, Bases]:
    manager = CheckpointManager(URL, **options)
    bases: Bases = {}
    for step in range(steps):
        manager.save(step, TREES[step], metrics={"loss": 1 / (step + 1)})
        bases[step] = stores.base_of(manager)
    return manager, bases


def check(place: Path | str, bases: Bases, steps: list[int]) -> None:
    """What a fresh reader finds: these steps, in every bit as the writer had them."""
    reader = CheckpointManager(place, readonly=True)
    assert reader.all_steps() == steps
    report = reader.verify()
    assert report.ok, report
    for step in steps:
        assert stores.arrays_of(reader.restore(step, residual=False)) == bases[step]


def ending(bucket: Bucket, *ends: str) -> list[str]:
    return [name for name in bucket.names() if name.endswith(ends)]


def commits(bucket: Bucket) -> list[int]:
    return [int(name[7:27]) for name in bucket.names() if name.startswith("commit-")]


def test_rules_drop_commits_and_their_parts(bucket: Bucket) -> None:
    manager, bases = train(9, full_every=3, max_to_keep=2, keep_period=4)
    check(URL, bases, [0, 4, 7, 8])
    # 3 and 6 are layers of what stays.
    assert commits(bucket) == [0, 3, 4, 6, 7, 8]
    assert len(ending(bucket, ".part.ckptz")) == 6
    assert [name[:10] for name in ending(bucket, ".hidden")] == ["0000000003", "0000000006"]
    assert [stats.metrics for stats in [manager.stats(4)]] == [{"loss": 0.2}]
    manager.save(9, TREES[9])
    bases[9] = stores.base_of(manager)
    check(URL, bases, [0, 4, 8, 9])
    manager.close()


def test_the_commit_is_deleted_before_its_part(bucket: Bucket) -> None:
    manager, bases = train(5, full_every=1)
    bucket.requests.clear()
    manager.delete(2)
    deleted = [name for what, name in bucket.requests if what == "delete"]
    assert deleted[0] == f"commit-{2:020d}.ckptz"
    assert deleted[1].startswith("0000000002-")
    assert deleted[1].endswith(".part.ckptz")
    check(URL, bases, [0, 1, 3, 4])
    manager.close()


def test_the_newest_commit_stays_for_others_to_collide_with(bucket: Bucket) -> None:
    manager, bases = train(4, full_every=1)
    rival = CheckpointManager(URL, full_every=1)
    manager.delete(3)
    check(URL, bases, [0, 1, 2])
    assert commits(bucket) == [0, 1, 2, 3]
    assert len(ending(bucket, ".hidden")) == 1
    rival.save(3, TREES[5])
    assert commits(bucket) == [0, 1, 2, 3, 4]
    with pytest.raises(ckptz.StoreLockedError):
        manager.gc()
    # Now the dropped one is not the newest any more.
    assert rival.gc().dropped == []
    assert commits(bucket) == [0, 1, 2, 4]
    assert ending(bucket, ".hidden") == []
    bases[3] = stores.base_of(rival)
    check(URL, bases, [0, 1, 2, 3])


def test_a_base_that_another_has_deleted_meanwhile(bucket: Bucket) -> None:
    manager, bases = train(4, full_every=2)
    late = CheckpointManager(URL, full_every=2)
    late.restore(2, rewind=True)
    done = False

    def before(what: str, name: str) -> None:
        nonlocal done
        if what == "close" and not done:
            done = True
            for step in (3, 2):
                manager.delete(step)

    bucket.before = before
    with pytest.raises(ckptz.StoreLockedError, match="deleted"):
        late.save(3, TREES[9])
    check(URL, bases, [0, 1])


def test_pins_keep_their_residuals(bucket: Bucket, tmp_path: Path) -> None:
    manager, bases = train(3)
    manager.pin()
    for step in range(3, 6):
        manager.save(step, TREES[step])
        bases[step] = stores.base_of(manager)
    assert [n[:10] for n in ending(bucket, ".residual.ckptz")] == ["0000000002", "0000000005"]
    with pytest.raises(ValueError, match="pinned"):
        manager.delete(2)
    assert manager.pinned_steps() == [2]
    copy_store(open_storage(URL), open_storage(tmp_path / "copy"))
    for place in (URL, tmp_path / "copy"):
        reader = CheckpointManager(place, readonly=True)
        assert reader.pinned_steps() == [2]
        assert stores.arrays_of(reader.restore(2)) == stores.arrays_of(TREES[2])
    manager.unpin(2)
    assert ending(bucket, ".pin") == []
    manager.gc()
    assert len(ending(bucket, ".residual.ckptz")) == 1
    check(URL, bases, list(range(6)))
    manager.close()


@pytest.mark.parametrize("after", [False, True])
def test_a_collection_that_is_cut_off_at_any_request(
    monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    number, done = 0, False
    while not done:
        number += 1
        bucket = fake_objects.install(monkeypatch, deadline="0.01").bucket()
        manager, bases = train(6, full_every=3)
        left = number

        def hook(what: str, name: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise GenericError("HTTP error: error sending request")

        setattr(bucket, "after" if after else "before", hook)
        try:
            manager.delete(2)
            done = left > 0
        except ckptz.NetworkError:
            assert left <= 0
        bucket.before = bucket.after = fake_objects.nothing
        steps = CheckpointManager(URL, readonly=True).all_steps()
        assert steps in ([0, 1, 2, 3, 4, 5], [0, 1, 3, 4, 5])
        check(URL, bases, steps)
        manager.gc()
        check(URL, bases, steps)
        manager.close()
    assert number > 4


def test_merging_is_refused_in_an_object_store(bucket: Bucket) -> None:
    manager, _ = train(3)
    before = dict(bucket.objects)
    with pytest.raises(ckptz.CkptzError, match=r"s3://bucket/run: .* cannot be merged"):
        manager.merge()
    assert bucket.objects == before
    with pytest.raises(ckptz.CkptzError, match="cannot be merged"):
        CheckpointManager(URL, max_files=3)


def test_parts_are_merged_in_a_directory_and_copied_back(bucket: Bucket, tmp_path: Path) -> None:
    manager, bases = train(8, full_every=4)
    manager.delete(2)
    manager.close()
    copy_store(open_storage(URL), open_storage(tmp_path))
    with CheckpointManager(tmp_path, full_every=0) as local:
        ids = {step: local.stats(step).id for step in local}
        assert len(local.merge()) == 2
        assert {step: local.stats(step).id for step in local} == ids
        check_plain(local)
        steps = [0, 1, 3, 4, 5, 6, 7]
        check(tmp_path, bases, steps)
        # Fulls in parts with commits, the rest in two files, and the newest one's residual.
        names = [p.name for p in tmp_path.glob("*.ckptz")]
        assert sum(name.endswith(".merged.ckptz") for name in names) == 2
        assert sum(name.startswith("commit-") for name in names) == 2
        local.save(8, TREES[8])
        bases[8] = stores.base_of(local)
        assert local.stats(8).kind == "delta"
        check_plain(local)
    other = "s3://bucket/other"
    done = copy_store(open_storage(tmp_path), open_storage(other))
    assert not done.problems
    assert copy_store(open_storage(tmp_path), open_storage(other)).files == 0
    check(other, bases, [*steps, 8])
    with CheckpointManager(other) as back:
        back.save(9, TREES[9])
        bases[9] = stores.base_of(back)
        check(other, bases, [*steps, 8, 9])


def test_fewest_files_of_parts_in_a_directory(bucket: Bucket, tmp_path: Path) -> None:
    manager, bases = train(6)
    manager.close()
    copy_store(open_storage(URL), open_storage(tmp_path))
    with CheckpointManager(tmp_path, max_files=3) as local:
        for step in range(6, 9):
            local.save(step, TREES[step])
            bases[step] = stores.base_of(local)
            assert local.stats().restore_files <= 3
        check(tmp_path, bases, list(range(9)))
        assert local.all_steps() == list(range(9))


def test_a_copy_of_a_store_with_dropped_steps(bucket: Bucket, tmp_path: Path) -> None:
    manager, bases = train(6)
    copy_store(open_storage(URL), open_storage(tmp_path))
    manager.delete(2)
    manager.delete(4)
    done = copy_store(open_storage(URL), open_storage(tmp_path))
    assert done.files == 2
    check(tmp_path, bases, [0, 1, 3, 5])
    manager.close()


def test_gc_of_a_url(bucket: Bucket) -> None:
    manager, bases = train(5, full_every=1)
    manager.close()
    before = dict(bucket.objects)
    assert run("gc", URL, "--max-to-keep", 2, "--dry-run", "--json").document["kept"] == [3, 4]
    assert bucket.objects == before
    document = run("gc", URL, "--max-to-keep", 2, "--json").document
    assert document["dropped"] == [0, 1, 2]
    gone = {name.removeprefix("run/") for name in before.keys() - bucket.objects.keys()}
    assert set(document["files"]) == gone
    check(URL, bases, [3, 4])
    assert run("gc", "s3://bucket/nothing").code == 3
