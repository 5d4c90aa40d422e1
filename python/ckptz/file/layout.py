"""What a file is made of, byte by byte (format.md, section 2)."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from ..share import COMMIT, PART

Bytes = NDArray[np.uint8]

MAGIC = b"\x89CKPTZ\r\n"
END_MAGIC = b"PTZ\n"
VERSION = 1
REVISION = 2
# Features (format.md, section 14): several snapshots in a file, predicted bases, parts and
# commits, a snapshot's field `extra`, and the coding of pairs.
MERGED, PREDICTED_BASES, PARTS, EXTRA, PAIRS = 1, 2, 4, 8, 16
KNOWN_FEATURES = MERGED | PREDICTED_BASES | PARTS | EXTRA | PAIRS
# Those that revision 0 does not know.
OF_REVISION = {1: PREDICTED_BASES | EXTRA, 2: PAIRS}

SNAPSHOT, RESIDUAL = 1, 2
FEATURES_OF = {SNAPSHOT: 0, RESIDUAL: 0, PART: PARTS, COMMIT: PARTS}
SUFFIX = ".ckptz"
RESIDUAL_SUFFIX = ".residual.ckptz"

HEADER = struct.Struct("<8sBBBBI")
FOOTER = struct.Struct("<QI4sQ")
PAYLOAD_AT = HEADER.size
LARGEST_METADATA = 2**32 - 1
