"""States of arrays as files that other programs read: .safetensors and .npz."""

from __future__ import annotations

from .npz import write_npz
from .safetensors import write_safetensors

__all__ = ["write_npz", "write_safetensors"]
