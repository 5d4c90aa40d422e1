from __future__ import annotations

import random
import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from ckptz.errors import FormatError, UnsupportedTypeError
from ckptz.schema import decode_values, encode_values
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.msgpack import Ext
from trees import assert_same, mutated, values


@given(st.lists(values(), max_size=5))
@example([2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**4000, -(2**71), 2**71 - 1])
@example([True, 1, 1.0, 0, False, -0.0, None, "", b""])
@example([np.longdouble(1) / 3, np.float64(1), np.bool_(True), np.str_("\ud800")])
def test_values_come_back(plain: list[Any]) -> None:
    blob = msgspec.msgpack.encode(encode_values(plain))
    assert_same(decode_values(msgspec.msgpack.decode(blob)), plain)


@pytest.mark.parametrize(
    ("value", "packed"),
    [
        (2**64, Ext(1, bytes(8) + b"\1")),
        (2**71 - 1, Ext(1, b"\xff" * 8 + b"\x7f")),
        (2**71, Ext(1, bytes(8) + b"\x80\0")),
        (-(2**63) - 1, Ext(1, b"\xff" * 7 + b"\x7f\xff")),
        (-(2**71), Ext(1, bytes(8) + b"\x80")),
        (1j, Ext(2, struct.pack("<dd", 0, 1))),
        ("\ud800a", Ext(3, b"\xed\xa0\x80a")),
        (np.float32(1), Ext(4, b"\x07float32\0\0\x80\x3f")),
        (np.str_("a"), Ext(4, b"\x03<U1a\0\0\0")),
        (bytearray(b"a"), b"a"),
    ],
)
def test_extension_types(value: Any, packed: Any) -> None:
    assert encode_values([value]) == [packed]


def test_nan_payloads_and_the_sign_of_zero() -> None:
    bits = (0x7FF0000000000001, 0xFFF8000000000005, 1 << 63)
    floats = [struct.unpack("<d", struct.pack("<Q", each))[0] for each in bits]
    blob = msgspec.msgpack.encode(encode_values([*floats, complex(*floats[1:])]))
    assert_same(decode_values(msgspec.msgpack.decode(blob)), [*floats, complex(*floats[1:])])


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (Ext(0, b""), "unknown extension type 0"),
        (Ext(5, b""), "unknown extension type 5"),
        (Ext(1, b""), "more bytes than it needs"),
        (Ext(1, b"\1"), "more bytes than it needs"),
        (Ext(1, bytes(8) + b"\1\0"), "more bytes than it needs"),
        (Ext(2, bytes(15)), "complex number of 15 bytes"),
        (Ext(3, b"a"), "valid text"),
        (Ext(3, b"\xff"), "not even UTF-8"),
        (Ext(4, b""), "without a dtype name"),
        (Ext(4, b"\x08float32"), "without a dtype name"),
        (Ext(4, b"\x01\xff"), "without a dtype name"),
        (Ext(4, b"\x07float32123"), "has 3 bytes"),
        (Ext(4, b"\x06objectxx"), "unknown dtype 'object'"),
        ([], "list is no plain value"),
        ({}, "dict is no plain value"),
        (msgspec.msgpack.decode(b"\xd6\xff\0\0\0\0"), "datetime is no plain value"),
    ],
)
def test_values_that_are_refused(packed: Any, message: str) -> None:
    with pytest.raises(FormatError, match=f"value 1: .*{message}"):
        decode_values([None, packed])


def test_a_value_that_is_not_plain() -> None:
    with pytest.raises(UnsupportedTypeError, match="value 0: no plain value: set"):
        encode_values([set()])


@given(st.lists(values(), min_size=1, max_size=4), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_mutated_values_give_values_or_a_format_error(plain: list[Any], rng: random.Random) -> None:
    blob = msgspec.msgpack.encode(encode_values(plain))
    for _ in range(20):
        try:
            packed = msgspec.msgpack.decode(mutated(blob, rng))
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            continue
        try:
            found = decode_values(packed if isinstance(packed, list) else [packed])
        except FormatError:
            continue
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(encode_values(found)))
        assert_same(decode_values(again), found)
