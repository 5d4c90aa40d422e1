"""ckptz saves a training run as a stream of small lossy deltas.

Any snapshot comes back fast, the newest one bit for bit. `CheckpointManager` is the main
entrance; `save_file` and `load_file` keep one state in one file.
"""

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
