"""One file: header, payload, metadata, footer (format.md, section 2)."""

from ..share import COMMIT, PART
from .entry import Entry, file_name, merged_name
from .layout import (
    E5M3FNU,
    EXTRA,
    MERGED,
    PAIRS,
    PARTS,
    PAYLOAD_AT,
    PREDICTED_BASES,
    RESIDUAL,
    RESIDUAL_SUFFIX,
    SNAPSHOT,
    SUFFIX,
    features_of,
)
from .read import FileReader
from .write import FileWriter, Pieces

__all__ = [
    "COMMIT",
    "E5M3FNU",
    "EXTRA",
    "MERGED",
    "PAIRS",
    "PART",
    "PARTS",
    "PAYLOAD_AT",
    "PREDICTED_BASES",
    "RESIDUAL",
    "RESIDUAL_SUFFIX",
    "SNAPSHOT",
    "SUFFIX",
    "Entry",
    "FileReader",
    "FileWriter",
    "Pieces",
    "features_of",
    "file_name",
    "merged_name",
]
