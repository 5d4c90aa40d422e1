"""The closed loop on real runs: what a process that knows nothing of the writer restores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
import pytest
import stores
from ckptz.inputs import list_inputs, open_input
from test_paper import SHARED

SHIPPED = Path(__file__).parents[2] / "examples" / "data"
RUNS = sorted(
    {path.parent for top in (SHIPPED, SHARED) if top for path in top.rglob("*.safetensors")}
)

RESTORE = """
import json, sys, ckptz, stores
manager = ckptz.CheckpointManager(sys.argv[1], readonly=True, threads=2)
newest = max(manager.all_steps())
print(json.dumps([stores.digest(manager.restore(newest, residual=False)),
                  stores.digest(manager.restore())]))
"""


def state_of(path: Path) -> dict[str, Any]:
    with open_input(path) as file:
        state = file.state()
    assert isinstance(state, dict)
    return {key: np.array(value) for key, value in state.items()}


@pytest.mark.parametrize("policy", ["lossy", "paper:3"])
@pytest.mark.parametrize("run", RUNS, ids=lambda run: "-".join(run.parts[-2:]))
def test_every_snapshot_of_a_run(tmp_path: Path, run: Path, policy: str) -> None:
    with ckptz.CheckpointManager(tmp_path, policy, threads=1) as manager:
        for step, file in enumerate(list_inputs([run])):
            state = state_of(file)
            manager.save(step, state)
            base = stores.base_of(manager)
            assert stores.arrays_of(stores.fresh(tmp_path, residual=False)) == base
            assert stores.digest(stores.fresh(tmp_path)) == stores.digest(state)
        reconstructed, exact = json.loads(stores.run_python(RESTORE, tmp_path).stdout)
        assert reconstructed == stores.digest(manager.restore(residual=False))
        assert exact == stores.digest(state)
        assert manager.verify().ok
