"""Makes the files beside it with torch 2.13: `python tests/data/inputs/make.py`.

Values are chosen so that a test without torch can say what must come back.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent


def training() -> dict[str, Any]:
    """A model with batch statistics and tied weights, Adam after one step, schedule, RNG states."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        OrderedDict(
            first=torch.nn.Linear(3, 3, bias=False),
            norm=torch.nn.BatchNorm1d(3),
            tied=torch.nn.Linear(3, 3, bias=False),
        )
    )
    with torch.no_grad():
        model.first.weight.copy_(torch.arange(9.0).reshape(3, 3))
    model.tied.weight = model.first.weight
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    schedule.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "rng": torch.get_rng_state()[:64].clone(),  # 5,056 bytes as a whole
        "numpy_rng": np.random.Generator(np.random.PCG64(7)).bit_generator.state,
        "step": 1,
    }


def kinds() -> dict[str, Any]:
    """A tensor of each kind of dtype, layout and sharing, and NumPy's values."""
    base = torch.arange(6.0)
    return {
        "bfloat16": torch.tensor([1.0, -2.5, 3e38], dtype=torch.bfloat16),
        "float8": torch.tensor([1.0, -2.0], dtype=torch.float8_e4m3fn),
        "uint16": torch.tensor([1, 65535], dtype=torch.uint16),
        "complex": torch.tensor([1 + 2j, -3j], dtype=torch.complex64),
        "bool": torch.tensor([True, False]),
        "half": torch.tensor(0.5, dtype=torch.float16),
        "empty": torch.zeros(0, 5),
        "parameter": torch.nn.Parameter(torch.tensor([7.0])),
        "whole": base,
        "transposed": base.reshape(2, 3).t(),
        "strided": base[1::2],
        "expanded": torch.tensor([9]).expand(2, 3),
        "size": torch.Size([2, 3]),
        "device": torch.device("cuda", 1),
        "dtype": torch.float32,
        "bytes": b"a\xff",
        "list": [1, -2.5, None, True, 2**100, "\u00e9", 1 + 2j],
        "array": np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
        "scalar": np.float32(1.5),
        5: "an integer key",
        "5": "a text key",
    }


def main() -> None:
    """Write each state in the new and in the old format."""
    for name, state in (("training", training()), ("kinds", kinds())):
        torch.save(state, HERE / f"{name}.pt")
        torch.save(state, HERE / f"{name}_legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(torch.nn.Linear(1, 1), HERE / "module.pt")


if __name__ == "__main__":
    main()
