"""The same bytes, coded and decoded, with all vector code of the machine, some of it, and none.

A machine without AVX-512 compares AVX2 with itself, one without AVX2 nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys

WORK = """
import hashlib
import numpy as np, ml_dtypes
from ckptz import Rule, codec

rng = np.random.default_rng(3)
digest = hashlib.sha256()


def see(target, base, *rules):
    for rule in rules:
        for with_base in (True, False):
            own = base.copy() if with_base else None
            stored = bytes(codec.encode(target, own, rule, threads=1))
            restored = codec.decode(stored, base.copy() if with_base else None, threads=1)
            assert own is None or own.tobytes() == restored.tobytes()
            digest.update(stored)
            digest.update(restored.tobytes())


def steps(n, share, tails):
    change = rng.standard_normal(n) * np.exp(tails * rng.standard_normal(n)) * 1e-3
    return np.where(rng.random(n) < share, change, 0).astype(np.float32)


MORE = Rule(levels=7), Rule(levels=2, refinement=2), Rule(max_error=1e-4)
LOSSY = ("lossy", "paper:3", "paper:4", *MORE)
for n in (17, 1000, 70_000, 300_001):
    for share, tails in ((1, 0), (1, 2), (0.3, 1), (0.02, 1), (0.0005, 1)):
        base = (0.02 * rng.standard_normal(n)).astype(np.float32)
        target = base + steps(n, share, tails)
        target[n // 2 : n // 2 + n // 5] = base[n // 2 : n // 2 + n // 5]
        see(target, base, *LOSSY, "exact")
        see(target * target, base * base, "lossy", "exact")
        odd = rng.integers(0, n, 9)
        target[odd] = rng.integers(0, 2**32, 9, np.uint32).view(np.float32)
        target[odd[:3]] = np.nan, np.inf, -0.0
        see(target, base, *LOSSY[:4], "exact")
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float64):
        see(target.astype(dtype), base.astype(dtype), "lossy", "exact")
print(digest.hexdigest())
"""


def digest_with(simd: str) -> str:
    env = {**os.environ, "CKPTZ_SIMD": simd}
    command = [sys.executable, "-W", "ignore", "-c", WORK]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def test_the_bytes_are_the_same_with_any_vector_code() -> None:
    assert digest_with("all") == digest_with("avx2") == digest_with("portable")
