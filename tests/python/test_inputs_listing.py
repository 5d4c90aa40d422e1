"""Which files are read, in which order, and as which step."""

from __future__ import annotations

from pathlib import Path

import pytest
from ckptz.errors import FormatError
from ckptz.inputs import list_inputs, open_input, step_of
from inputs_files import survives


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("000320.safetensors", 320),
        ("ckpt-9.pt", 9),
        ("step_10000.npz", 10000),
        ("7.bin", 7),
        ("model.pt", None),
        ("epoch1-step2.pt", None),
        ("model-00001-of-00002.safetensors", None),
        ("fp16.model.PT", 16),
        ("checkpoint-500", 500),
    ],
)
def test_step_of(name: str, step: int | None) -> None:
    assert step_of(Path("run2") / name) == step


def test_folders_are_in_numeric_order(tmp_path: Path) -> None:
    names = ["ckpt-9.pt", "ckpt-10.pt", "ckpt-99.pt", "ckpt-100.pt", "ckpt-007.pt", "b2x1.pt"]
    for name in [*names, "notes.txt", ".hidden-1.pt"]:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "inner.pt").mkdir()
    wanted = ["b2x1.pt", "ckpt-007.pt", "ckpt-9.pt", "ckpt-10.pt", "ckpt-99.pt", "ckpt-100.pt"]
    assert [path.name for path in list_inputs([tmp_path])] == wanted
    given = [tmp_path / "ckpt-10.pt", tmp_path / "ckpt-9.pt"]
    assert list_inputs(given) == given
    assert [path.name for path in list_inputs([given[1], tmp_path])] == ["ckpt-9.pt", *wanted]


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no checkpoint in this folder"):
        list_inputs([tmp_path])
    with pytest.raises(FileNotFoundError):
        list_inputs([tmp_path / "a.pt"])
    with pytest.raises(FileNotFoundError):
        open_input(tmp_path / "a.pt")
    with pytest.raises(OSError, match="directory"):
        open_input(tmp_path)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "the file is empty"),
        (b"\0", "neither"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"\x89CKPTZ\r\n", "a ckptz file already"),
        (b"\x80\x04K\x01.", "a pickle that torch.save did not write"),
        (b"\0" * 257 + b"ustar" + b"\0" * 300, "tar format"),
        (b"PK\3\4", "cut short"),
        (b"GGUF" + b"\0" * 100, "neither"),
    ],
)
def test_foreign_files(tmp_path: Path, data: bytes, what: str) -> None:
    for suffix in (".safetensors", ".npz", ".npy", ".pt", ".bin", ""):
        error = survives(tmp_path / f"a{suffix}", data)
        assert isinstance(error, FormatError)
        if suffix != ".safetensors":
            assert what in str(error)
