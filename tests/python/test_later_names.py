"""Dtype names that came after revision 2 of the format: files that use one say so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ckptz
import ml_dtypes
import numpy as np
import pytest
import stores
from ckptz import dtypes
from ckptz.file import E5M3FNU, layout
from test_golden import GOLDEN, check
from trees import assert_same

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import read_ckptz

KIND: Any = getattr(ml_dtypes, "float8_e5m3fnu", None)  # since 0.7
needs_kind = pytest.mark.skipif(KIND is None, reason="needs pip install -U ml_dtypes (0.7)")
PLAIN = {"w": np.arange(5)}


def state(step: int) -> dict[str, Any]:
    return {"w": np.arange(1, 9, dtype=np.float32).astype(KIND), "step": step}


@needs_kind
def test_the_golden_store_restores() -> None:
    folder = GOLDEN / "named"
    manager, plain = ckptz.CheckpointManager(folder, readonly=True), read_ckptz.Store(str(folder))
    assert manager.all_steps() == plain.steps() == [0, 1, 2]
    for step in range(3):
        told = folder / f"expected-{step}.json"
        check(manager.restore(step, keys="*", as_numpy=True), told)
        read = np.asarray(plain.restore(step)["w0"])
        assert read.tobytes() == manager.restore(step)["w0"].tobytes()
    assert type(manager.restore(2)["scalars"][0]) is KIND
    assert manager.verify().ok
    files = stores.snapshot_files(folder)
    # A delta names nothing by itself, but for a value that is new.
    assert [stores.header_of(path) for path in files] == [(3, E5M3FNU), (0, 0), (3, E5M3FNU)]


def test_what_needs_no_newer_ml_dtypes_restores_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ml_dtypes, "float8_e5m3fnu", raising=False)
    manager = ckptz.CheckpointManager(GOLDEN / "named", readonly=True)
    assert manager.verify().ok
    assert manager.restore(0, keys="plain")["plain"].tolist() == [0, 1, 2]
    with pytest.raises(ckptz.UnsupportedTypeError, match="float8_e5m3fnu: needs a newer ml_dtypes"):
        manager.restore(0)


@needs_kind
@pytest.mark.parametrize("where", ["tensor", "scalar", "later scalar", "text"])
def test_a_file_says_so_exactly_where_it_names_one(tmp_path: Path, where: str) -> None:
    used: dict[str, Any] = {
        "tensor": [state(0), state(1)],
        "scalar": [PLAIN | {"s": KIND(2)}] * 2,
        "later scalar": [PLAIN | {"s": None}, PLAIN | {"s": KIND(2)}],
        "text": [PLAIN | {"s": "float8_e5m3fnu"}] * 2,
    }
    manager = ckptz.CheckpointManager(tmp_path)
    for step, tree in enumerate(used[where]):
        manager.save(step, tree)
        assert_same(manager.restore(), tree)
        ckptz.save_file(tree, tmp_path / "one")
        assert_same(ckptz.load_file(tmp_path / "one"), tree)
    features = [stores.header_of(path) for path in stores.snapshot_files(tmp_path)]
    named = [(3, E5M3FNU), (0, 0)]
    assert features == (named[::-1] if where == "later scalar" else named)
    assert stores.header_of(tmp_path / "one") == (3, E5M3FNU)


def test_older_files_with_the_text_are_read() -> None:
    """It was a text like others before it was a name."""
    path = GOLDEN / "text.ckptz"
    assert stores.header_of(path) == (0, 0)
    expected = {"float8_e5m3fnu_scale": 0.5, "config": {"dtype": "float8_e5m3fnu"}}
    restored = ckptz.load_file(path)
    assert restored.pop("w").tolist() == [1.0, 2.0]
    assert restored == expected
    assert read_ckptz.read_file(str(path))["config/dtype"] == "float8_e5m3fnu"


def test_older_stores_with_the_text_are_read(tmp_path: Path) -> None:
    with ckptz.CheckpointManager(tmp_path) as manager:
        manager.save(1, PLAIN | {"name": "float8_e5m3fnu"})
    for path in stores.snapshot_files(tmp_path):
        stores.strip_features(path)
    manager = ckptz.CheckpointManager(tmp_path)
    assert manager.verify().ok
    assert_same(manager.restore(), PLAIN | {"name": "float8_e5m3fnu"})
    manager.save(2, PLAIN | {"name": "float8_e5m3fnu"})
    assert manager.all_steps() == [1, 2]


@needs_kind
def test_merged_files_say_so(tmp_path: Path) -> None:
    """Also one that is made of deltas alone, for it gets the schema of the full snapshot."""
    with ckptz.CheckpointManager(tmp_path) as manager:
        for step in range(5):
            manager.save(step, state(step))
        manager.merge([2, 3, 4])
        assert_same(manager.restore(), state(4))
    (merged,) = tmp_path.glob("*.merged.ckptz")
    assert stores.header_of(merged) == (3, E5M3FNU | 1)
    assert manager.verify().ok
    assert read_ckptz.Store(str(tmp_path)).restore(3)["step"] == 3


def test_names_keep_their_bits() -> None:
    """Readers of revision 3 know this name by this bit: another name needs another one."""
    assert layout.BIT_OF_NAME == {b"float8_e5m3fnu": 1 << 5}
    assert {name.decode() for name in layout.BIT_OF_NAME} <= dtypes.ML_SIZES.keys()
    # The writer looks for text: no name may be part of an older one.
    older = [name.encode() for name in dtypes._SIZES if name.encode() not in layout.BIT_OF_NAME]
    assert not [name for name in layout.BIT_OF_NAME for old in older if name in old]
