"""Files made to deceive: their checksums are right. A typed error, or a state; nothing worse."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import ckptz
import msgspec
import numpy as np
import pytest
import stores
from ckptz import CheckpointManager, codec
from ckptz.file import RESIDUAL, SNAPSHOT, FileWriter, Pieces
from ckptz.schema import Schema, encode_values
from ckptz.snapshot import Meta, pack_blob, pack_varint, schema_digest
from hypothesis import given
from hypothesis import strategies as st

ALLOWED = (ckptz.CkptzError, MemoryError)


def refit(data: bytes, payload: int) -> bytes:
    """Make the checksums of a file right again."""
    if len(data) < 40 + payload:
        return data
    crc = codec.Crc()
    crc.update(data[16 : 16 + payload])
    metadata = data[16 + payload : -24]
    start = struct.pack("<QI4s", crc.value, len(metadata), b"PTZ\n")
    crc = codec.Crc()
    crc.update(data[:16] + metadata + start)
    return data[: 16 + payload] + metadata + start + struct.pack("<Q", crc.value)


def tree(step: int) -> stores.State:
    return {
        "a": stores.weights(step, (20,)) + stores.weights(99, (20,)) * 9,
        "b": {"c": np.arange(6).reshape(2, 3), "d": stores.weights(step, (30,)).astype("f2")},
        "e": [step, "text", 2.5, {"f": ()}],
    }


def file_of(kind: int, meta: bytes, headers: bytes, schema: bytes | None) -> bytes:
    """Return a file without payload."""
    pieces = Pieces()
    FileWriter(pieces, kind).finish(meta, headers, schema)
    return b"".join(pieces)


def use_store(path: Path) -> None:
    """Use a store in every way there is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ckptz.CkptzWarning)
        manager = CheckpointManager(path, threads=1)
        manager.verify()
        manager.all_steps()
        for use in (manager.restore, manager.stats, lambda: read_lazily(manager)):
            with contextlib.suppress(*ALLOWED):
                use()
        for step in range(3):
            with contextlib.suppress(*ALLOWED):
                manager.restore(step)
        # It never stops anyone from going on.
        manager.save(2**62, tree(9))
        assert stores.digest(manager.restore()) == stores.digest(tree(9))
        manager.close()


def read_lazily(manager: CheckpointManager) -> None:
    with manager.open() as snapshot:
        for view in snapshot.values():
            view[:1] if view.shape else view[()]


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, bytes, int]]:
    path = tmp_path_factory.mktemp("store")
    with CheckpointManager(path, threads=1) as manager:
        for step in range(3):
            manager.save(step, tree(step))
        entries = [*manager._store.entries.values(), *manager._store.residuals.values()]
        return sorted((e.name, (path / e.name).read_bytes(), e.payload_bytes) for e in entries)


@stores.examples(250)
@given(st.data())
def test_bytes_changed_under_right_checksums(
    blobs: list[tuple[str, bytes, int]],
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("hostile")
    hit = data.draw(st.integers(0, len(blobs) - 1))
    for number, (name, blob, payload) in enumerate(blobs):
        if number == hit:
            changed = bytearray(blob)
            for _ in range(data.draw(st.integers(1, 3))):
                low = data.draw(st.sampled_from([16, 16 + payload]))
                at = data.draw(st.integers(low, len(blob) - 25))
                changed[at] = data.draw(st.integers(0, 255))
            blob = refit(bytes(changed), payload)
        (path / name).write_bytes(blob)
        if number == hit:
            with contextlib.suppress(*ALLOWED):
                ckptz.load_file(path / name, threads=1)
    use_store(path)


FULL = Meta(0, 0, None, schema_digest(Schema.encode([(None, 16)])), 5, values=encode_values([7]))


def forged(path: Path, meta: bytes, schema: bytes | None, headers: bytes = b"") -> Path:
    file = path / "0000000000-forged.ckptz"
    file.write_bytes(file_of(SNAPSHOT, meta, headers, schema))
    return file


def test_forging_works(tmp_path: Path) -> None:
    file = forged(tmp_path, FULL.encode(), Schema.encode([(None, 16)]))
    assert ckptz.load_file(file) == 7
    assert CheckpointManager(tmp_path).restore() == 7


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": 2**64 - 1},
        {"sequence": 2**63},
        {"step": 2**63 - 1},
        {"created": 2**64 - 1},
        {"policy": [("*", "future", 1)]},
        {"policy": [()]},
        {"policy": []},
        {"policy": [("*",) * 50]},
        {"policy": [("[" * 500, "exact")]},
        {"marks": 1},
        {"values": []},
        {"values": [{"a": 1}]},
        {"values": [[[]]]},
        {"values": [msgspec.msgpack.Ext(9, b"")]},
        {"schema": b"\0" * 16},
        {"sequence": 9, "rewound": [(0, 2), (4, 8)]},
    ],
)
def test_odd_fields(tmp_path: Path, change: dict[str, Any]) -> None:
    meta = msgspec.structs.replace(FULL, **change).encode()
    forged(tmp_path, meta, Schema.encode([(None, 16)]))
    if change.get("sequence") == 2**64 - 1:
        manager = CheckpointManager(tmp_path)
        assert manager.restore() == 7
        with pytest.raises(ckptz.FormatError, match="its sequence numbers are used up"):
            manager.save(1, tree(1))
        return
    if change.get("step"):
        assert CheckpointManager(tmp_path).restore() == 7
        return
    use_store(tmp_path)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x91" * 100_000,
        b"\x95\x00\x00\xc0\xc4\x10" + b"\0" * 16 + b"\x05",
        msgspec.msgpack.encode([0, 0, None, b"\0" * 16, 5, [[]]]),
        b"\x96\x00\x00\xc0\xc4\x10" + b"\0" * 16 + b"\x05" + b"\x91" * 5000 + b"\x90",
        b"\x80",
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
    ],
    ids=range(8),
)
def test_odd_metadata(tmp_path: Path, raw: bytes) -> None:
    file = forged(tmp_path, raw, Schema.encode([(None, 16)]))
    with pytest.raises(ckptz.FormatError) as found:
        ckptz.load_file(file)
    assert str(file) in str(found.value)
    use_store(tmp_path)


def test_cycles_of_parents(tmp_path: Path) -> None:
    """An id is a digest, so a cycle takes a broken digest; the walk ends all the same."""
    manager = CheckpointManager(tmp_path)
    for step in range(2):
        manager.save(step, {"w": stores.weights(step)})
    store = manager._store
    first, second = sorted(store.entries.values(), key=lambda e: e.meta.sequence)
    for entry, parent in ((first, second), (second, first)):
        meta = msgspec.structs.replace(entry.meta, parent=parent.id)
        msgspec.structs.force_setattr(entry, "meta", meta)
    assert manager.all_steps() == []
    assert store.policy(first) is not None
    with pytest.raises(ckptz.MissingSnapshotError):
        store.chain(second)


def test_claims_that_the_bytes_do_not_back_allocate_nothing(tmp_path: Path) -> None:
    huge = [(None, 17, "uint8", (2**47,), 0)]
    schema = Schema.encode(huge)
    meta = msgspec.structs.replace(FULL, schema=schema_digest(schema), values=[]).encode()
    blob = bytearray(file_of(SNAPSHOT, meta, b"\x00" * 8, schema))
    tracemalloc.start()
    for claim in (b"", pack_varint(2**60 << 1), pack_varint(2**40 << 1 | 1) + pack_varint(2**50)):
        file = tmp_path / "claim.ckptz"
        metadata = pack_varint(1) + pack_varint(1) + (claim or pack_blob(meta)) + bytes(50)
        file.write_bytes(refit(bytes(blob[:16]) + metadata + bytes(24), 0))
        with pytest.raises(ckptz.FormatError):
            ckptz.load_file(file)
    file.write_bytes(bytes(blob))
    with pytest.raises(ckptz.FormatError):
        ckptz.load_file(file)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_a_residual_that_claims_another_snapshot(tmp_path: Path) -> None:
    """Its records must fit the snapshot's, and what they give must match their sums."""
    with CheckpointManager(tmp_path, threads=1) as manager:
        for step in range(3):
            manager.save(step, tree(step))
        entry = next(iter(manager._store.residuals.values()))
        headers = manager._store.stored(entry).headers
        victim = next(e for e in manager._store.entries.values() if e.meta.step == 1)
    expected = stores.digest(stores.fresh(tmp_path, step=1))
    payload = (tmp_path / entry.name).read_bytes()[16 : 16 + entry.payload_bytes]
    pieces = Pieces()
    file = FileWriter(pieces, RESIDUAL)
    file.write_payload(np.frombuffer(payload, np.uint8))
    meta = msgspec.structs.replace(entry.meta, parent=victim.id)
    file.finish(meta.encode(), headers, None)
    (tmp_path / "forged.residual.ckptz").write_bytes(b"".join(pieces))
    with pytest.warns(ckptz.CkptzWarning, match="the residual of step 1 is lost"):
        assert stores.digest(stores.fresh(tmp_path, step=1)) == expected
    assert not CheckpointManager(tmp_path).verify().ok
