"""Pickles made to use up memory and time, and random ones: an error, or a state, at once."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs_files import (
    ARRAY,
    ENCODE,
    OD,
    integer,
    integers,
    storage,
    survives,
    tensor,
    text,
    torch_legacy,
    torch_zip,
)


def test_a_few_bytes_do_not_become_many(tmp_path: Path) -> None:
    double = b"]q\x00"
    for _ in range(100):
        double += b"0](h\x00h\x00eq\x00"
    long = text("a" * 100_000) + b"q\x00"
    pairs = b"](" + b"](K\x01K\x01e" * 10_000 + b"eq\x00"
    scalar = b"cnumpy\ndtype\n" + text("S100000") + b"\x85Rq\x02"
    bombs = {
        "lists of lists": double,
        "copies of a text": long + (b"0" + ENCODE + b"h\x00" + text("latin1") + b"\x86R") * 10_000,
        "copies of pairs": pairs + (b"0" + OD + b"h\x00\x85R") * 10_000,
        "copies of scalars": ENCODE + long + text("latin1") + b"\x86Rq\x01" + scalar
        + (b"0cnumpy.core.multiarray\nscalar\nh\x02h\x01\x86R") * 10_000,
        "marks": b"(" * 100_000,
        "lists in lists": b"]" * 100_000 + b"a" * 99_999,
        "tuples in tuples": b")" + b"\x85" * 100_000,
        "a deep tuple as a key": b"})" + b"\x85" * 100_000 + b"Ns",
        "tensors in tensors": tensor() + b"q\0" + b"0h\0" * 100_000,
        "long integers as sizes": tensor(size=b"(" + integer(2**2000) * 1000 + b"t"),
        "equal hashes": b"}" + b"".join(integer(i * (2**61 - 1)) + b"Ns" for i in range(20_000)),
    }  # fmt: skip
    tracemalloc.start()
    try:
        for name, bomb in bombs.items():
            tracemalloc.reset_peak()
            started = tracemalloc.get_traced_memory()[0]
            survives(tmp_path / "a", torch_zip(b"\x80\x02" + bomb + b"."), seconds=20)
            used = tracemalloc.get_traced_memory()[1] - started
            assert used < 60_000_000 + 100 * len(bomb), name
    finally:
        tracemalloc.stop()


OPCODES = [
    b"N", b"\x88", b"\x89", b"K\x00", b"K\x01", b"]", b"}", b")", b"(", b"0", b"1", b"2", b"a",
    b"e", b"s", b"u", b"t", b"l", b"d", b"\x85", b"\x86", b"\x87", b"R", b"b", b"Q",
    b"\x93", b"\x94",
    b"h\x00", b"h\x01", b"h\x02", b"q\x00", b"q\x01", b"C\x04abcd", b"G" + b"\0" * 8, OD, ENCODE,
    text("storage"), text("0"), text("latin1"), text("f4"), text("C"), integer(4), integers(4),
    integers(1), b"ctorch\nFloatStorage\n", storage(), tensor(), ARRAY,
    b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch._utils\n_rebuild_parameter\n",
    b"ccollections\ndefaultdict\n", b"ccollections\nCounter\n", b"c__builtin__\nlist\n",
    b"cnumpy\ndtype\n", b"cnumpy\nndarray\n", b"cnumpy.core.multiarray\n_reconstruct\n",
    b"cnumpy.core.multiarray\nscalar\n", b"cnumpy.core.numeric\n_frombuffer\n",
    b"ctorch\nSize\n", b"ctorch\ndevice\n", b"ctorch\nfloat32\n", b"c__builtin__\ncomplex\n",
    b"ctorch._tensor\n_rebuild_from_type_v2\n", b"ctorch\nTensor\n", b"c__builtin__\nbytearray\n",
]  # fmt: skip


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parts=st.lists(st.sampled_from(OPCODES), max_size=40), legacy=st.booleans())
def test_any_sequence_of_opcodes(tmp_path: Path, parts: list[bytes], legacy: bool) -> None:
    wrap: Any = torch_legacy if legacy else torch_zip
    survives(tmp_path / "a", wrap(b"\x80\x02" + b"".join(parts) + b"."))


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    function=st.sampled_from([part for part in OPCODES if part[:1] == b"c"]),
    args=st.lists(
        st.sampled_from([part for part in OPCODES if part[:1] in b"NKC}])GXc"]), max_size=8
    ),
    state=st.lists(
        st.sampled_from([part for part in OPCODES if part[:1] in b"NKC}])GX"]), max_size=9
    ),
)
def test_any_call(tmp_path: Path, function: bytes, args: list[bytes], state: list[bytes]) -> None:
    call = function + b"(" + b"".join(args) + b"tR"
    survives(tmp_path / "a", torch_zip(b"\x80\x02" + call + b"."))
    survives(tmp_path / "a", torch_zip(b"\x80\x02" + call + b"(" + b"".join(state) + b"tb."))
