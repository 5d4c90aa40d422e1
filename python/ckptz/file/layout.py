"""What a file is made of, byte by byte (format.md, section 2)."""

from __future__ import annotations

import functools
import operator
import struct

import numpy as np
from numpy.typing import NDArray

from ..share import COMMIT, PART

Bytes = NDArray[np.uint8]

MAGIC = b"\x89CKPTZ\r\n"
END_MAGIC = b"PTZ\n"
VERSION = 1
REVISION = 3
# Features (format.md, section 14): several snapshots in a file, predicted bases, parts and
# commits, a snapshot's field `extra`, the coding of pairs, and a dtype name that came later.
MERGED, PREDICTED_BASES, PARTS, EXTRA, PAIRS, E5M3FNU = 1, 2, 4, 8, 16, 32
KNOWN_FEATURES = MERGED | PREDICTED_BASES | PARTS | EXTRA | PAIRS | E5M3FNU
# Those that revision 0 does not know.
OF_REVISION = {1: PREDICTED_BASES | EXTRA, 2: PAIRS, 3: E5M3FNU}

SNAPSHOT, RESIDUAL = 1, 2
FEATURES_OF = {SNAPSHOT: 0, RESIDUAL: 0, PART: PARTS, COMMIT: PARTS}
SUFFIX = ".ckptz"
RESIDUAL_SUFFIX = ".residual.ckptz"

HEADER = struct.Struct("<8sBBBBI")
FOOTER = struct.Struct("<QI4sQ")
PAYLOAD_AT = HEADER.size
LARGEST_METADATA = 2**32 - 1

# A name that the format's first readers did not know has a bit of its own, for ever.
BIT_OF_NAME = {b"float8_e5m3fnu": E5M3FNU}


def features_of(*blobs: bytes) -> int:
    """Return the features that a file needs for these metas and schemas (format.md, section 14).

    Perhaps too many: a name is looked for as text, which may stand for something else.
    """
    bits = (bit for name, bit in BIT_OF_NAME.items() if any(name in blob for blob in blobs))
    return functools.reduce(operator.or_, bits, 0)
