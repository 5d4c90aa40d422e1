"""ckptz saves a training run as a stream of small lossy deltas.

Any snapshot comes back fast, the newest one bit for bit. `CheckpointManager` is the main
entrance; `save_file` and `load_file` keep one state in one file.
"""

from typing import TYPE_CHECKING, Any

from . import codec
from .background import SaveFuture
from .errors import (
    BoundError,
    ChecksumError,
    CkptzError,
    CkptzWarning,
    FormatError,
    MismatchError,
    MissingKeyError,
    MissingSnapshotError,
    NetworkError,
    OtherProcessError,
    PolicyError,
    StateChangedError,
    StepExistsError,
    StepOrderError,
    StoreLockedError,
    UnknownVersionError,
    UnsupportedTypeError,
)
from .keeping import Collected
from .manager import CheckpointManager
from .policy import Policy, Rule
from .single import load_file, safe_open, save_file

if TYPE_CHECKING:
    from .stats import SnapshotStats, TensorStats
    from .verify import Problem, VerifyReport
    from .view import Snapshot, TensorView

__version__ = codec.__version__

__all__ = [
    "BoundError",
    "CheckpointManager",
    "ChecksumError",
    "CkptzError",
    "CkptzWarning",
    "Collected",
    "FormatError",
    "MismatchError",
    "MissingKeyError",
    "MissingSnapshotError",
    "NetworkError",
    "OtherProcessError",
    "Policy",
    "PolicyError",
    "Problem",
    "Rule",
    "SaveFuture",
    "Snapshot",
    "SnapshotStats",
    "StateChangedError",
    "StepExistsError",
    "StepOrderError",
    "StoreLockedError",
    "TensorStats",
    "TensorView",
    "UnknownVersionError",
    "UnsupportedTypeError",
    "VerifyReport",
    "codec",
    "load_file",
    "safe_open",
    "save_file",
]

# What results are made of, and the module of each: imported when it is asked for.
_LATER = {
    "Problem": "verify",
    "Snapshot": "view",
    "SnapshotStats": "stats",
    "TensorStats": "stats",
    "TensorView": "view",
    "VerifyReport": "verify",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_LATER[name]}", __name__), name)
    globals()[name] = value
    return value
