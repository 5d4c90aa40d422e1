"""What saves a state and restores it: ckptz and moonclip, into stores in memory (tmpfs)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ckptz
import numpy as np
from arrays import State
from peers import load_peer
from timing import Contender


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a folder in memory where the system has such a file system."""
    memory = Path("/dev/shm")
    made = tempfile.mkdtemp(prefix="ckptz-bench-", dir=memory if memory.is_dir() else None)
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


class Saver:
    """Saves an older state and then, timed, a newer one, into a store of its own each round."""

    name = ""

    def __init__(self, top: Path, states: tuple[State, State]) -> None:
        self.path = top / self.name.replace(" ", "-")
        self.new, self.old = states

    def start(self) -> None:
        """Save the older state into an empty store."""
        raise NotImplementedError

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> Any:
        raise NotImplementedError

    def size(self) -> int:
        """Bytes that the newer state takes."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise if what comes back is not what was saved."""
        raise NotImplementedError

    def sides(self) -> tuple[Contender, Contender]:
        save = Contender(self.name, self.save, self.start)
        return save, Contender(self.name, self.restore)


class CkptzSaver(Saver):
    def __init__(
        self,
        name: str,
        top: Path,
        states: tuple[State, State],
        policy: str,
        exact: str,
        threads: int = 1,
    ) -> None:
        self.name = name
        super().__init__(top, states)
        self._options: dict[str, Any] = {"policy": policy, "exact": exact, "threads": threads}
        self._bit_for_bit = policy == "exact" or exact == "latest"
        self.manager: ckptz.CheckpointManager | None = None

    def start(self) -> None:
        if self.manager is not None:
            self.manager.close()
        shutil.rmtree(self.path, ignore_errors=True)
        self.manager = ckptz.CheckpointManager(self.path, **self._options)
        self.manager.save(0, self.old)

    def save(self) -> None:
        assert self.manager is not None
        self.manager.save(1, self.new)

    def restore(self) -> Any:
        assert self.manager is not None
        return self.manager.restore()

    def size(self) -> int:
        assert self.manager is not None
        stats = self.manager.stats()
        return stats.bytes + stats.residual_bytes

    def check(self) -> None:
        assert self.manager is not None
        restored = self.restore()
        if self._bit_for_bit:
            _check_same(restored, self.new)
        else:
            assert not self.manager.verify().problems


class MoonclipSaver(Saver):
    """moonclip in one thread, synchronous (as ckptz is), given tensors that it need not copy."""

    name = "moonclip"

    def __init__(self, top: Path, states: tuple[State, State], moonclip: Any) -> None:
        super().__init__(top, states)
        self._moonclip = moonclip
        self._given = [self._tensors(state) for state in (self.new, self.old)]
        self._manager: Any = None
        self._newest = ""

    @staticmethod
    def _tensors(state: State) -> dict[str, Any]:
        torch = load_peer("torch")
        if torch is not None:
            return {key: torch.from_numpy(array) for key, array in state.items()}
        return {k: (list(a.shape), a.dtype.name, a.tobytes()) for k, a in state.items()}

    def start(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._manager = self._moonclip.MoonclipManager(str(self.path), async_save=False)
        self._manager.save_tensors(0, self._given[1])

    def save(self) -> None:
        self._newest = self._manager.save_tensors(1, self._given[0])

    def restore(self) -> Any:
        return self._manager.load(self._newest)

    def size(self) -> int:
        inside = (self.path / "snapshots" / self._newest).rglob("*")
        return sum(path.stat().st_size for path in inside if path.is_file())

    def check(self) -> None:
        _check_same(self.restore(), self.new)


def _check_same(restored: Any, state: State) -> None:
    for key, array in state.items():
        found = restored[key]
        raw = found.tobytes() if isinstance(found, np.ndarray) else bytes(found)
        if raw != array.tobytes():
            raise AssertionError(f"{key}: not what was saved")
