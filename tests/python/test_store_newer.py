"""Files of a newer ckptz: a store that holds one is refused whole (format.md, section 14)."""

from __future__ import annotations

from pathlib import Path

import ckptz
import pytest
import stores
from ckptz import CheckpointManager, UnknownVersionError
from test_damage_hostile import refit
from trees import assert_same

# Of the header: version, kind, reserved, features.
NEWER = [(8, 2), (9, 4), (11, 1), (12, 64), (15, 0x80)]


def edited(data: bytes, at: int, value: int) -> bytes:
    payload = len(data) - 40 - int.from_bytes(data[-16:-12], "little")
    return refit(data[:at] + bytes([value]) + data[at + 1 :], payload)


@pytest.mark.parametrize(("at", "value"), NEWER)
def test_a_newer_file_is_refused_with_its_store(tmp_path: Path, at: int, value: int) -> None:
    manager = stores.saved(tmp_path, 1, 2)
    newest = stores.snapshot_files(tmp_path)[-1]
    good = newest.read_bytes()
    newest.write_bytes(edited(good, at, value))
    before = stores.files(tmp_path)
    for readonly in (True, False):
        with pytest.raises(UnknownVersionError, match=newest.name):
            CheckpointManager(tmp_path, readonly=readonly)
    with pytest.raises(UnknownVersionError, match="offset 8"):
        manager.save(3, stores.small(3))
    with pytest.raises(UnknownVersionError):
        manager.reload()
    with pytest.raises(UnknownVersionError):
        ckptz.load_file(newest)
    assert stores.files(tmp_path) == before
    # Once it is gone, or known, all is as before.
    newest.write_bytes(good)
    manager.save(3, stores.small(3))
    assert manager.all_steps() == [1, 2, 3]
    assert_same(stores.fresh(tmp_path), stores.small(3))


def test_a_newer_file_that_comes_during_a_save(tmp_path: Path) -> None:
    manager = stores.saved(tmp_path, 1)
    data = stores.snapshot_files(tmp_path)[0].read_bytes()
    strange = tmp_path / "strange.ckptz"

    def meanwhile(_: int) -> None:
        strange.write_bytes(edited(data, 12, 4))

    with pytest.raises(UnknownVersionError):
        manager.save(2, {"w": stores.weights(0)}, progress=meanwhile)
    assert len(stores.snapshot_files(tmp_path)) == 2
    strange.unlink()
    assert CheckpointManager(tmp_path).all_steps() == [1]


@pytest.mark.parametrize(("at", "value"), NEWER)
def test_a_damaged_header_is_only_damage(tmp_path: Path, at: int, value: int) -> None:
    stores.saved(tmp_path, 1, 2)
    newest = stores.snapshot_files(tmp_path)[-1]
    data = bytearray(newest.read_bytes())
    data[at] = value
    newest.write_bytes(data)
    with pytest.warns(ckptz.CkptzWarning, match="offset 8"):
        assert CheckpointManager(tmp_path).all_steps() == [1]
