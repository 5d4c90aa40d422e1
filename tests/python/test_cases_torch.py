"""What people ran into, rebuilt: torch. Each test names the report, as cases.md does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores

torch: Any = pytest.importorskip("torch", reason="needs torch: pip install torch")


def bits(tensor: Any) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def round_trips(path: Path, tree: dict[str, Any]) -> None:
    """Through a file, a full snapshot and deltas, in every bit; the caller's stay as they are."""
    before = {name: bits(tensor) for name, tensor in tree.items()}
    ckptz.save_file(tree, path / "one.ckptz")
    found = [ckptz.load_file(path / "one.ckptz")]
    with ckptz.CheckpointManager(path / "run") as manager:
        for step in range(2):
            manager.save(step, tree)
            found.append(manager.restore())
    for one in found:
        for name, tensor in tree.items():
            assert type(one[name]) is torch.Tensor
            assert one[name].dtype == tensor.dtype
            assert one[name].shape == tensor.shape
            assert bits(one[name]) == before[name]
            assert not one[name].requires_grad
    assert {name: bits(tensor) for name, tensor in tree.items()} == before


def test_safetensors_469_825_layouts(tmp_path: Path) -> None:
    base = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)
    round_trips(
        tmp_path,
        {
            "t": base[0, 0].t(),
            "expanded": base[:, :1].expand(2, 3, 4, 5),
            "channels_last": base.contiguous(memory_format=torch.channels_last),
            "strided": base[::2, :, ::3],
            "flipped": base.flip(0),
            "permuted": base.permute(3, 1, 0, 2),
        },
    )


def test_safetensors_489_598_every_dtype(tmp_path: Path) -> None:
    kinds = sorted({k for k in vars(torch).values() if isinstance(k, torch.dtype)}, key=str)
    tree = {}
    for kind in kinds:
        raw = torch.arange(1, 33, dtype=torch.uint8)
        try:
            tree[str(kind)] = raw.bool() if kind == torch.bool else raw.view(kind)
            ckptz.save_file({"w": tree[str(kind)]}, tmp_path / "probe.ckptz")
        except (RuntimeError, TypeError):  # quantized: no such views, and refused
            tree.pop(str(kind), None)
    for name in (
        "float32",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "uint16",
        "uint32",
        "uint64",
    ):
        assert f"torch.{name}" in tree
    round_trips(tmp_path, tree)
    # Readable from NumPy alone.
    found = ckptz.load_file(tmp_path / "one.ckptz", as_numpy=True)
    assert all(isinstance(array, np.ndarray) for array in found.values())


def test_safetensors_304_tied_parameters(tmp_path: Path) -> None:
    class Tied(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.nn.Linear(30, 20)
            self.decoder = torch.nn.Linear(30, 20)
            self.decoder.weight = self.encoder.weight

    model = Tied()
    with ckptz.CheckpointManager(tmp_path) as manager:
        for step in range(3):
            with torch.no_grad():
                model.encoder.weight += 0.01
            manager.save(step, model.state_dict())
            found = manager.restore()
            assert found["encoder.weight"] is found["decoder.weight"]
            assert torch.equal(found["encoder.weight"], model.encoder.weight)
            assert found._metadata == model.state_dict()._metadata
            again = Tied()
            again.load_state_dict(found)


def test_a_whole_training_state(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.BatchNorm1d(30))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def train(steps: int) -> None:
        for _ in range(steps):
            loss = model(torch.randn(16, 20)).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def state() -> dict[str, Any]:
        return {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "rng": torch.get_rng_state(),
        }

    with ckptz.CheckpointManager(tmp_path) as manager:
        for step in range(4):
            train(3)
            manager.save(step, state())
        train(5)
        expected = stores.arrays_of(state())
        # Back to the newest: the run goes on bit for bit.
        found = manager.restore()
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        torch.set_rng_state(found["rng"])
        train(5)
        assert stores.arrays_of(state()) == expected
        # History is lossy, but never in counters and statistics.
        old = manager.restore(1)
        assert old["model"]["1.num_batches_tracked"] == 6
        assert float(old["optimizer"]["state"][0]["step"]) == 6.0
        kinds = stores.representatives(manager, 1)
        assert not kinds["model/1.running_mean"]["lossy"]


def test_ao_2478_a_wrapper_subclass_is_refused_by_name(tmp_path: Path) -> None:
    class Wrapper(torch.Tensor):  # type: ignore[misc]
        pass

    wrapped = torch.ones(3).as_subclass(Wrapper)
    with pytest.raises(ckptz.UnsupportedTypeError, match=r"^model/w: .*Wrapper"):
        ckptz.save_file({"model": {"w": wrapped}}, tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_pytorch_187138_a_template_of_torch_tensors(tmp_path: Path) -> None:
    saved = {"w": torch.randn(4, 5), "h": torch.randn(3).bfloat16(), "n": 3}
    with ckptz.CheckpointManager(tmp_path) as manager:
        manager.save(0, saved)
        like = {"w": torch.zeros(4, 5), "h": torch.zeros(3, dtype=torch.bfloat16), "n": 0}
        found = manager.restore(like=like)
        assert torch.equal(found["w"], saved["w"])
        assert torch.equal(found["h"], saved["h"])
        assert found["n"] == 3
        assert not like["w"].any()
        with pytest.raises(ckptz.MismatchError, match=r"h: the template has float32 of shape"):
            manager.restore(like=like | {"h": torch.zeros(3)})
        cast = manager.restore(like=like | {"h": torch.zeros(3)}, cast=True)
        assert torch.equal(cast["h"], saved["h"].float())
        cast = manager.restore(like=like | {"w": torch.zeros(4, 5).bfloat16()}, cast=True)
        assert torch.equal(cast["w"], saved["w"].bfloat16())
        with pytest.raises(ckptz.MismatchError, match=r"w: the template has .* of shape \(5, 4\)"):
            manager.restore(like=like | {"w": torch.zeros(5, 4)}, cast=True)
        arrays = manager.restore(like={"w": np.zeros((4, 5), "f4")})
        assert isinstance(arrays["w"], np.ndarray)
        meta = manager.restore(like={"w": torch.empty(4, 5, device="meta")})
        assert torch.equal(meta["w"], saved["w"])
