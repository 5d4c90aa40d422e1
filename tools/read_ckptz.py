#!/usr/bin/env python3
"""Reads ckptz checkpoints without ckptz: made from the format's page ("section N" below) alone, to be taken away.

    python read_ckptz.py FILE|STORE [--step N] [--no-residual] [-o OUT.npz]

As a module: read_file(path) and Store(directory).restore(step) give a State, a dict of key path -> array or plain
value; read_array(data, base) decodes one array frame. It needs Python 3.10 and NumPy, and zstandard once a zstd frame
is met. A dtype that NumPy lacks comes out as unsigned integers of the same size (void bytes where there are none of
that size); State.dtypes tells the dtype name of every tensor. Bad input raises FormatError.
"""

import argparse
import contextlib
import json
import math
import os
import re
import struct
import sys
import zipfile
from collections import namedtuple
from contextlib import contextmanager
from functools import lru_cache
from types import SimpleNamespace

import numpy as np

U8, U32, U64, MASK64 = np.uint8, np.uint32, np.uint64, 2**64 - 1


class FormatError(Exception):
    """The input is not what the format's page allows. `file` names it, once known."""

    file = None

    def __str__(self):
        return f"{self.file}: {super().__str__()}" if self.file else super().__str__()


class Incomplete(FormatError):
    """The file has no valid footer: it holds nothing."""


def need(condition, what, error=FormatError):
    """Refuse the input unless the condition holds."""
    if not condition:
        raise error(what)


@contextmanager
def naming(name):
    """Give errors raised inside the file's name; what slips through the checks becomes a FormatError too."""
    try:
        with np.errstate(all="ignore"):
            yield
    except FormatError as error:
        error.file = error.file or name
        raise
    except (ValueError, LookupError, TypeError, ArithmeticError, MemoryError, RecursionError, struct.error) as error:
        told = FormatError(f"cannot be decoded ({type(error).__name__}: {error})")
        told.file = name
        raise told from error


# ---- Section 1: conventions, checksums, MessagePack


class Cursor:
    """Reads bytes from front to back, never past the end."""

    def __init__(self, data):
        self.data, self.pos = data, 0

    def left(self):
        return len(self.data) - self.pos

    def take(self, n):
        need(n <= self.left(), "the data ends early")
        self.pos += n
        return self.data[self.pos - n : self.pos]

    def uint(self, n):
        return int.from_bytes(self.take(n), "little")

    def varint(self, bits=64):
        value = shift = 0
        while True:
            byte = self.uint(1)
            value |= (byte & 127) << shift
            need(value >> bits == 0 and shift < bits and (byte or not shift), "a varint is too large or too long")
            if byte < 128:
                return value
            shift += 7

    def rising(self, count):
        """Rising numbers: the first, then each less the one before less 1."""
        need(count <= self.left(), "the data ends early")
        numbers = []
        for _ in range(count):
            numbers.append(self.varint() + (numbers[-1] + 1 if numbers else 0))
        return numbers

    def blob(self):
        stored, packed = divmod(self.varint(), 2)
        raw = self.varint() if packed else stored
        need(raw <= 1024 * stored + 4096, "a blob claims too many bytes")
        return unzstd(self.take(stored), raw) if packed else bytes(self.take(stored))

    def end(self):
        need(not self.left(), f"{self.left()} bytes too many")


def unzstd(data, size):
    """The `size` bytes that exactly one zstd frame holds."""
    import zstandard

    try:
        claimed = zstandard.get_frame_parameters(data).content_size
        need(claimed in (size, zstandard.CONTENTSIZE_UNKNOWN), "a zstd frame of another size")
        out = zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise FormatError(f"zstd: {error}") from error
    need(len(out) == size, "a zstd frame of another size")
    return out


def crc_steps(table, register, rows):
    """Feed rows of bytes to a row of CRC registers, one byte to each at a time."""
    for row in rows:
        register = table[(register ^ row) & U64(255)] ^ (register >> U64(8))
    return register


@lru_cache(None)
def crc_tables(lane):
    """The byte table of CRC-64/NVME, and eight (one a register byte) that move a register over `lane` zero bytes."""
    poly, table = U64(int(f"{0xAD93D23594C93659:064b}"[::-1], 2)), np.arange(256, dtype=U64)
    for _ in range(8):
        table = (table >> U64(1)) ^ (table & U64(1)) * poly
    start = np.arange(256, dtype=U64) << (U64(8) * np.arange(8, dtype=U64)[:, None])
    return table, crc_steps(table, start, np.zeros(lane, U64)).tolist()


def crc64(data, lane=1024):
    """CRC-64/NVME: lanes of bytes side by side in NumPy, put together afterwards; the rest byte by byte."""
    table, skip = crc_tables(lane)
    crc, size = MASK64, len(data) // lane * lane
    for begin in range(0, size, lane << 14):
        lanes = np.frombuffer(data[begin : min(size, begin + (lane << 14))], U8).reshape(-1, lane)
        for value in crc_steps(table, np.zeros(len(lanes), U64), np.ascontiguousarray(lanes.T)).tolist():
            for k in range(8):
                value ^= skip[k][crc >> 8 * k & 255]
            crc = value
    for byte in bytes(data[size:]):
        crc = int(table[(crc ^ byte) & 255]) ^ (crc >> 8)
    return crc ^ MASK64


B3_IV = np.array([0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19], U32)
B3_ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]


def b3_compress(cv, words, counters, lengths, flags):
    """BLAKE3's compression of a row of blocks at once: cv is 8 x blocks, words 16 x blocks."""
    a, b, c = cv[:4], cv[4:], np.repeat(B3_IV[:4, None], cv.shape[1], 1)
    d = np.stack(np.broadcast_arrays(counters, counters >> 32, lengths, flags)).astype(U32)
    for turn in range(14):  # columns, diagonals, columns ..
        slant = turn & 1
        b, c, d = np.roll(b, -slant, 0), np.roll(c, -2 * slant, 0), np.roll(d, -3 * slant, 0)
        for part, right, left in ((0, 16, 12), (1, 8, 7)):
            a = a + b + words[8 * slant + part : 8 * slant + 8 : 2]
            d = (d ^ a) >> U32(right) | (d ^ a) << U32(32 - right)
            c = c + d
            b = (b ^ c) >> U32(left) | (b ^ c) << U32(32 - left)
        b, c, d = np.roll(b, slant, 0), np.roll(c, 2 * slant, 0), np.roll(d, 3 * slant, 0)
        words = words[B3_ORDER] if slant else words
    return np.concatenate([a ^ c, b ^ d])


def digest(data):
    """The first 16 bytes of BLAKE3: all chunks of 1024 bytes side by side, then the tree over them."""
    count = max(1, -(-len(data) // 1024))
    words = np.frombuffer(bytes(data).ljust(count * 1024, b"\0"), "<u4").astype(U32).reshape(count, 16, 16)
    number, cv = np.arange(count), np.repeat(B3_IV[:, None], count, 1)
    for j in range(min(16, max(1, -(-len(data) // 64)))):
        size = np.minimum(1024, len(data) - 1024 * number) - 64 * j  # what is left in each chunk
        last = size <= 64
        after = b3_compress(cv, words[:, j].T, number, np.clip(size, 0, 64), (j == 0) + last * (2 + 8 * (count == 1)))
        cv = np.where((size > 0) | (j == 0), after, cv)
    while cv.shape[1] > 1:
        even = cv.shape[1] & ~1
        pairs = np.concatenate([cv[:, 0:even:2], cv[:, 1:even:2]])
        start, zero = np.repeat(B3_IV[:, None], even // 2, 1), np.zeros(even // 2, np.int64)
        cv = np.concatenate([b3_compress(start, pairs, zero, 64, 4 + 8 * (cv.shape[1] == 2)), cv[:, even:]], 1)
    return cv[:4, 0].astype("<u4").tobytes()


@lru_cache(None)
def sum_keys():
    """The 128 keys of the content sum."""
    z = np.arange(1, 129, dtype=U64) * U64(0x9E3779B97F4A7C15)
    z = (z ^ z >> U64(30)) * U64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> U64(27)) * U64(0x94D049BB133111EB)
    return (z ^ z >> U64(31)).reshape(16, 8)


def content_sum(data):
    """The content sum of a chunk's decoded bytes: blocks of 16 rows of 8 words are summed, then folded in order."""
    rows = -(-len(data) // 64)
    words = np.zeros((-(-rows // 16), 16, 8), "<u8")
    words.reshape(-1).view(U8)[: len(data)] = data
    x = words ^ sum_keys()
    products = (x & U64(0xFFFFFFFF)) * (x >> U64(32))
    products.reshape(-1, 8)[rows:] = 0  # rows that only fill up the last block
    acc = np.zeros(8, U64)
    for i, block in enumerate(products.sum(1) + words[:, :, np.arange(8) ^ 1].sum(1)):
        acc = acc + block
        if 16 * i + 16 <= rows:
            acc = (acc ^ acc >> U64(47)) * U64(0x9E3779B1)
    total = len(data)
    for lane in acc.tolist():
        total = (total ^ lane) * 0x9E3779B97F4A7C15 & MASK64
        total ^= total >> 29
    return total


# MessagePack: first byte -> family, size of the number or length that follows, the least that needs this form
FORMS = {
    0xC4: ("bin", 1, 0),
    0xC5: ("bin", 2, 2**8),
    0xC6: ("bin", 4, 2**16),
    0xC7: ("ext", 1, 0),
    0xC8: ("ext", 2, 2**8),
    0xC9: ("ext", 4, 2**16),
    0xCC: ("uint", 1, 2**7),
    0xCD: ("uint", 2, 2**8),
    0xCE: ("uint", 4, 2**16),
    0xCF: ("uint", 8, 2**32),
    0xD0: ("int", 1, 2**5),
    0xD1: ("int", 2, 2**7),
    0xD2: ("int", 4, 2**15),
    0xD3: ("int", 8, 2**31),
    0xD9: ("str", 1, 2**5),
    0xDA: ("str", 2, 2**8),
    0xDB: ("str", 4, 2**16),
    0xDC: ("array", 2, 2**4),
    0xDD: ("array", 4, 2**16),
    0xCB: ("float", 0, 0),
}


def unpack(data):
    """The one MessagePack value that fills the data."""
    cur = Cursor(bytes(data))
    value = unpack_next(cur, 0)
    cur.end()
    return value


def unpack_next(cur, depth):
    """The next MessagePack value; only the shortest forms are taken, and no maps."""
    head = cur.uint(1)
    if head < 0x80 or head >= 0xE0:
        return head if head < 0x80 else head - 256
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head]
    if 0x90 <= head < 0xC0:
        family, n = ("array", head & 15) if head < 0xA0 else ("str", head & 31)
    elif 0xD4 <= head <= 0xD8:
        family, n = "ext", 1 << head - 0xD4
    else:
        need(head in FORMS, f"MessagePack byte {head:02x}, which ckptz does not use")
        family, size, least = FORMS[head]
        n = int.from_bytes(cur.take(size), "big", signed=family == "int")
        need(n < -least if family == "int" else n >= least, "MessagePack not in its shortest form")
        need(family != "ext" or n not in (1, 2, 4, 8, 16), "MessagePack not in its shortest form")
    if family == "array":
        need(n <= cur.left() and depth < 16, "a MessagePack array is too long or too deep")
        return [unpack_next(cur, depth + 1) for _ in range(n)]
    if family == "ext":
        return unpack_extension(cur.uint(1), cur.take(n))
    if family == "float":
        return struct.unpack(">d", cur.take(8))[0]
    return n if family in ("int", "uint") else str(cur.take(n), "utf-8") if family == "str" else cur.take(n)


def unpack_extension(code, data):
    """Large integers, complex numbers, text with lone surrogates, NumPy scalars."""
    if code == 1:
        value = int.from_bytes(data, "little", signed=True)
        need(
            not -(2**63) <= value < 2**64 and len(data) == (value ^ value >> len(data) * 8).bit_length() // 8 + 1,
            "an integer in the wrong form",
        )
        return value
    if code == 2:
        return complex(*struct.unpack("<2d", data))
    if code == 3:
        text = str(data, "utf-8", "surrogatepass")
        need(re.search("[\ud800-\udfff]", text), "text in the wrong form")
        return text
    need(code == 4 and data, f"unknown MessagePack extension {code}")
    dtype = find_dtype(str(data[1 : 1 + data[0]], "utf-8"))
    need(len(data) == 1 + data[0] + dtype.size, "a NumPy scalar of the wrong size")
    return np.ndarray((), dtype.numpy, data, 1 + data[0])[()]


# ---- Section 4: dtypes and the schema

# kind: f16, bf16, f32, f64 or "" for bytes; width: bytes of an element; per: elements of an entry; numpy: comes out
Dtype = namedtuple("Dtype", "name size kind width per numpy")
FLOATS = {
    "float16": ("f16", 2, 1),
    "bfloat16": ("bf16", 2, 1),
    "float32": ("f32", 4, 1),
    "float64": ("f64", 8, 1),
    "complex32": ("f16", 2, 2),
    "complex64": ("f32", 4, 2),
    "complex128": ("f64", 8, 2),
}
NATIVE = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
SIZES = {
    1: "bool int8 uint8 float4_e2m1fn float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz "
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e5m3fnu float8_e8m0fnu int1 int2 int4 uint1 "
    "uint2 uint4 float4_e2m1fn_x2 int3 int5 int6 int7 uint3 uint5 uint6 uint7 bits8 bits1x8 bits2x4 bits4x2",
    2: "int16 uint16 bits16",
    4: "int32 uint32 bcomplex32",
    8: "int64 uint64",
}
PLAIN = {name: size for size, names in SIZES.items() for name in names.split()}
STRINGS = re.compile(
    r"(?:<U|\|S)(0|[1-9][0-9]{0,9})|<(?:f(12|16)|c(24|32))|"
    r"<[Mm]8(?:\[(?:[2-9]|[1-9][0-9]+)?(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)


@lru_cache(4096)
def find_dtype(name):
    """What a dtype name of the closed list stands for."""
    kind, width, per = FLOATS.get(name, ("", 0, 1))
    match = STRINGS.fullmatch(name)
    need(kind or match or name in PLAIN, f"unknown dtype {name!r}")
    size = width * per if kind else PLAIN.get(name, 8)
    if match and any(match.groups()):
        size = int(match[1] or match[2] or match[3]) * (4 if name[1] == "U" else 1)
    need(size < 2**31, f"dtype {name!r} is too large")
    numpy = np.dtype(f"<u{size}" if size in (1, 2, 4, 8) else f"V{size}")
    if name in NATIVE or match:
        with contextlib.suppress(TypeError):  # a long double of another machine
            numpy = np.dtype(name).newbyteorder("<")
    if not kind:
        width, per = (size, 1) if size <= 255 else (1, size)
    return Dtype(name, size, kind, width, per, numpy)


class Tensor:
    """One tensor of a schema: where it is in the state and what its elements are."""

    def __init__(self, path, node):
        self.path, self.dtype = path, find_dtype(node[2])
        self.shape = self.sizes(node[3])
        self.whole, self.offset = self.shape, (0,) * len(self.shape)
        if len(node) == 7:
            self.whole, self.offset = self.sizes(node[5]), self.sizes(node[6])
            need(
                len(self.whole) == len(self.offset) == len(self.shape)
                and all(o + s <= w for o, s, w in zip(self.offset, self.shape, self.whole)),
                "a wrong global shape",
            )
        self.count = math.prod(self.shape) * self.dtype.per if self.dtype.size else 0
        self.key = path, self.dtype.name, self.shape, self.whole, self.offset

    def sizes(self, value):
        need(isinstance(value, list) and len(value) <= 64 and all(map(is_uint, value)), "a wrong shape")
        need(math.prod(max(1, n) for n in value) * max(1, self.dtype.size) <= 2**48, "a tensor is too large")
        return tuple(value)

    def array(self, data):
        """The tensor's bytes as an array of its shape."""
        return np.ndarray(self.shape, self.dtype.numpy, data)


def is_uint(value, limit=2**64):
    return type(value) is int and 0 <= value < limit


def show(key):
    """One key of a key path as text."""
    escaped = str(key).replace("~", "~0").replace("/", "~1")
    return "~2" + escaped if isinstance(key, str) and re.fullmatch("-?(0|[1-9][0-9]*)", key) else escaped


NODE_SIZES = {0: (3,), 1: (3,), 2: (3,), 3: (5,), 4: (4,), 5: (3,), 6: (4,), 7: (3,), 16: (2,), 17: (5, 7), 18: (3,)}


class Schema:
    """The leaves of a state in preorder: (path, "value" | "tensor", number); a shared leaf names its tensor again."""

    def __init__(self, data):
        self.leaves, self.tensors, self.values, self.cost, self.classes = [], [], 0, 0, set()
        nodes = unpack(data)
        need(isinstance(nodes, list) and len(nodes) <= 2**26, "schema: not an array of nodes")
        self.nodes = iter(nodes)
        self.place(self.next_node(), None, 0, 0)
        need(next(self.nodes, None) is None, "schema: nodes too many")

    def next_node(self):
        node = next(self.nodes, None)
        need(
            isinstance(node, list)
            and len(node) > 1
            and type(node[1]) is int
            and len(node) in NODE_SIZES.get(node[1], ()),
            "schema: a node is missing or wrong",
        )
        return node

    def place(self, node, path, weight, depth):
        """Add one node, with all below it, at a key path (None: the root)."""
        leaf, tag = "~3" if path is None else path, node[1]
        need(path is not None or node[0] is None, "schema: the root has a key")
        if tag < 8:
            need(depth < 32 and is_uint(node[2]), "schema: a container is wrong, or too deep")
            self.children(node, "" if path is None else path + "/", weight, depth + 1)
        elif tag == 16:
            self.leaves.append((leaf, "value", self.values))
            self.values += 1
        elif tag == 17:
            self.leaves.append((leaf, "tensor", len(self.tensors)))
            self.tensors.append(Tensor(leaf, node))
        else:
            need(is_uint(node[2], len(self.tensors)), "schema: a shared leaf names no tensor")
            self.leaves.append((leaf, "tensor", node[2]))

    def children(self, node, prefix, weight, depth):
        tag, count, seen = node[1], node[2], set()
        total = count + (tag == 4 and node[3] == 1)  # an ordered dict may have an attribute as well
        self.cost += weight * total
        need(self.cost <= 2**30, "schema: key paths are too long")
        if tag == 3:
            self.classes.add((node[3], *node[4]))
            need(len(node[4]) == count and len(self.classes) <= 2**12, "schema: named tuples")
        for i in range(total):
            child = self.next_node()
            key = child[0]
            if tag in (0, 4, 5, 6) and i < count:
                need(isinstance(key, str) or (type(key) is int and -(2**63) <= key < 2**64), "schema: a wrong key")
            else:
                need(key is None and (tag != 7 or child[1] == 16), "schema: a key too many, or a wrong child")
                key = node[4][i] if tag == 3 else i
                need(tag != 3 or isinstance(key, str), "schema: wrong field names")
            text = "~4" if i == count else show(key)
            need(text not in seen, "schema: a key comes twice")
            seen.add(text)
            size = 8 if isinstance(key, int) else len(key.encode("utf-8", "surrogatepass"))
            need(size <= 2**20, "schema: a key is too long")
            self.place(child, prefix + text, weight + size + 1, depth)


# ---- Sections 5 and 6: record headers, Huffman codes, bit fields

# element type: bits, mantissa bits, type of arithmetic (section 8)
ELEMENT = {"f16": (16, 10, "<f4"), "bf16": (16, 7, "<f4"), "f32": (32, 23, "<f4"), "f64": (64, 52, "<f8")}
LOSSY = {2: (0, 1, 2), 3: (0, 1, 2), 4: (0, 1, 2)}
BASES = {
    "full": dict.fromkeys((1, 2, 3, 4, 5, 7), (0,)),  # which bases a kind may have
    "delta": {0: (1,), 1: (0,), **LOSSY, 5: (0, 1), 6: (1, 2), 7: (0, 1)},
    "residual": {0: (3,), 1: (0,), 5: (0, 3), 6: (3,), 7: (0, 3)},
    "frame": {0: (1,), 2: (0, 1), 3: (0, 1), 4: (0, 1), 5: (0, 1), 6: (1,), 7: (0, 1)},
}
FORMULAS = {1: (1, 2), 2: (2, 3), 3: (1, 3)}  # predicted bases: siblings, coefficients


def read_record(cur, tensor, total, mode):
    """One of `total` record headers of a snapshot; `mode` is one of BASES."""
    head = cur.uint(1)
    rec = SimpleNamespace(
        tensor=tensor,
        kind=head & 15,
        base=head >> 4 & 3,
        exceptions=head >> 7,
        log=16,
        beside=[],
        formula=0,
        coding=0,
        r=0,
        index=[],
        spans=[],
    )
    need(rec.base in BASES[mode].get(rec.kind, ()), f"a record of kind {rec.kind}, base {rec.base} in a {mode} record")
    need(not rec.exceptions or rec.kind in (2, 3, 4), "exceptions flag with a kind that has none")
    need(rec.kind in (0, 1, 7) or tensor.dtype.kind, "a record for floats of a tensor of bytes")
    need(rec.kind or not head & 64, "a record `same` is not one byte")
    if head & 64:
        rec.log = cur.uint(1)
        need(6 <= rec.log <= 24 and rec.log != 16, "a wrong chunk size")
    if rec.kind == 1:
        rec.beside = [cur.varint()]
    elif rec.kind == 7:
        rec.planes = cur.uint(1)
        need(rec.planes in (0, tensor.dtype.width) and rec.planes != 1, "planes that do not fit the element's size")
    elif rec.kind:
        read_coded(cur, rec)
    need(all(n < total for n in rec.beside), "a reference to no record")
    chunks = -(-tensor.count >> rec.log) if rec.kind else 0
    need(chunks <= cur.left(), "the record headers end early")
    for _ in range(chunks):
        v = cur.varint() if rec.kind > 1 else 1
        need((v or rec.base in (1, 3)) and v <= 2**56, "a wrong chunk length")
        rec.index.append((v - 1, cur.uint(8)) if v else None)
    return rec


def read_coded(cur, rec):
    """The fields of kinds 2 to 6."""
    rec.coding, (width, _, arithmetic) = cur.uint(1), ELEMENT[rec.tensor.dtype.kind]
    if rec.kind < 5:
        rec.coding, rec.r = rec.coding & 7, rec.coding >> 3
        cur.uint(2)  # the error is for information
    need(rec.coding <= 5 and rec.r <= 23, "an unknown coding, or too many refinement bits")
    size = int(arithmetic[2])
    if rec.base == 2:
        rec.formula = cur.uint(1)
        siblings, coefficients = FORMULAS[rec.formula]
        rec.beside = [cur.varint() for _ in range(siblings)]
        rec.coefficients = np.frombuffer(cur.take(size * coefficients), arithmetic)
    rec.K = cur.uint(1)
    need(rec.K <= 15, "too many symbols")
    if rec.kind >= 5:
        rec.top = cur.varint() if rec.K else 0
    elif rec.kind == 2 and not rec.r:
        rec.steps = np.frombuffer(cur.take(size * rec.K), arithmetic)
        need(np.isfinite(rec.steps).all() and rec.steps.all(), "a representative is zero or not finite")
    else:  # exponents, or zigzag: magnitudes and signs
        read = [cur.varint(66 if not rec.r else 64) for _ in range(rec.K)]
        rec.signs = np.array([v & 1 for v in read], U64)
        steps = [v >> 1 if rec.r else v + 1 >> 1 for v in read]
        of_integers = (1, width + 1 if rec.r else (2 << width) - 1)
        lowest, highest = of_integers if rec.kind > 2 else (0, 254 if size == 4 else 2046)
        need(all(lowest <= v <= highest for v in steps), "a representative is out of range")
        rec.steps = np.array([min(v, MASK64) for v in steps], U64)
    read_tables(cur, rec)


def read_tables(cur, rec):
    """The code tables of a record (section 6)."""
    if rec.coding == 0:
        rec.symbol = cur.uint(1)
        need(rec.symbol <= rec.K, "a constant symbol above K")
    elif rec.coding == 1:
        rec.tables = [huffman_table(nibbles(cur, rec.K + 1))]
    elif rec.coding == 2:
        need(rec.K, "mask coding without symbols")
        rec.tables = [huffman_table(nibbles(cur, n)) for n in [256] + [rec.K] * (rec.K > 1)]
    elif rec.coding == 3:
        rec.rho, rows = cur.uint(1), cur.uint(1)
        need(rec.rho <= 4 and 2 <= rec.K * rows <= 256 and rows <= (1 << rec.rho) + 24 - rec.rho, "wrong tokens")
        rec.tables = [huffman_table(packed_lengths(cur, rec.K, rec.K * rows))]
    elif rec.coding == 5:
        need(rec.K, "pairs without symbols")
        rec.tables = [huffman_table(nibbles(cur, (rec.K + 1) ** 2))]


def nibbles(cur, n):
    """n code lengths, two a byte."""
    raw = np.frombuffer(cur.take(n + 1 >> 1), U8)
    lengths = np.stack([raw & 15, raw >> 4], 1).ravel()
    need(not lengths[n:].any(), "padding that is not zero")
    return lengths[:n].tolist()


def packed_lengths(cur, first, count):
    """Code lengths of tokens: the first few in four bits, the others against the length `first` places before."""
    bits, used, lengths = int.from_bytes(cur.data[cur.pos : cur.pos + 256], "little"), 0, []
    for i in range(count):
        ones = 3 if i < first else next((k for k in range(3) if not bits >> used + k & 1), 3)  # 0, 10, 110 or 111
        used += 0 if i < first else min(3, ones + 1)
        lengths.append(bits >> used & 15 if ones == 3 else lengths[i - first] + (0, 1, -1)[ones])
        used += 4 * (ones == 3)
    padded = cur.take(used + 7 >> 3)
    need(not used & 7 or padded[-1] >> (used & 7) == 0, "padding that is not zero")
    return lengths


def huffman_table(lengths):
    """Symbol and length for every 11 bits that may follow in a stream (earliest bit lowest)."""
    used = sorted((n, symbol) for symbol, n in enumerate(lengths) if n)
    need(
        len(used) > 1 and used[0][0] > 0 and used[-1][0] <= 11 and sum(2048 >> n for n, _ in used) == 2048,
        "a Huffman code is not complete",
    )
    symbols, sizes, code = np.zeros(2048, U8), np.zeros(2048, np.int32), 0
    for n, symbol in used:
        first = int(f"{code:011b}"[::-1], 2)  # code is followed by zeros up to 11 bits
        symbols[first :: 1 << n], sizes[first :: 1 << n] = symbol, n
        code += 2048 >> n
    return symbols, sizes


def split(n):
    """The numbers of symbols or fields in the streams of a group of n."""
    quarter = -(-n // 128) * 32
    return [n] if n < 1024 else [quarter, quarter, quarter, n - 3 * quarter]


def read_group(cur, n, table):
    """A group of n symbols."""
    sizes = [cur.varint() for _ in split(n)] if n else []
    streams = [huffman(cur.take(size), count, *table) for size, count in zip(sizes, split(n))]
    return np.concatenate(streams).astype(np.int64) if n else np.zeros(0, np.int64)


def huffman(data, n, symbols, sizes):
    """Decode one stream: find the code that would start at each bit, then walk from code to code in growing strides."""
    bits = 8 * len(data)
    need(n <= bits, "a Huffman stream is too short")
    raw = np.zeros(len(data) + 3, U32)
    raw[:-3] = np.frombuffer(data, U8)
    window = raw[:-2] | raw[1:-1] << U32(8) | raw[2:] << U32(16)
    window = (window[:, None] >> np.arange(8, dtype=U32) & U32(2047)).ravel()
    after = np.minimum(np.arange(len(window), dtype=np.int32) + sizes[window], bits + 1)
    after[bits:] = bits + 1  # past the end, and there to stay
    jumps = [after]
    while len(jumps) < 5 and n >> len(jumps) + 4:
        jumps.append(jumps[-1][jumps[-1]])
    walk = [0]
    for _ in range(n >> len(jumps) - 1):
        walk.append(jumps[-1].item(walk[-1]))
    walk = np.array(walk)
    for jump in jumps[-2::-1]:
        walk = np.stack([walk, jump[walk]], 1).ravel()
    end = walk.item(n)
    need(end <= bits and end + 7 >> 3 == len(data), "a Huffman stream of the wrong length")
    need(not end & 7 or data[-1] >> (end & 7) == 0, "padding that is not zero")
    return symbols[window[walk[:n]]]


def bit_fields(cur, widths):
    """One stream of fields of the given widths, 0 to 64 bits."""
    ends = np.cumsum(widths)
    total = ends.item(-1) if len(ends) else 0
    data = cur.take(total + 7 >> 3)
    need(not total & 7 or data[-1] >> (total & 7) == 0, "padding that is not zero")
    raw = np.frombuffer(bytes(data) + bytes(9), U8)
    words = np.ndarray(len(data) + 1, "<u8", raw, strides=(1,))  # the 64 bits that start at each byte
    start, shift = ends - widths >> 3, (ends - widths & 7).astype(U64)
    high = raw[start + 8].astype(U64) << U64(1) << (U64(63) - shift)
    mask = (U64(MASK64) >> (64 - np.maximum(widths, 1)).astype(U64)) * (widths > 0)
    return (words[start] >> shift | high) & mask


def read_fields(cur, widths):
    """Fields of the given widths, in one stream or four."""
    parts = np.split(widths, np.cumsum(split(len(widths)))[:-1])
    return np.concatenate([bit_fields(cur, part) for part in parts])


def read_symbols(cur, rec, n):
    """The n symbols of a chunk."""
    if rec.coding == 0:
        return np.full(n, rec.symbol)
    if rec.coding == 1:
        return read_group(cur, n, rec.tables[0])
    symbols = np.zeros(n, np.int64)
    if rec.coding == 2:
        mask = np.unpackbits(read_group(cur, n + 7 >> 3, rec.tables[0]).astype(U8), bitorder="little")
        need(not mask[n:].any(), "mask bits past the end")
        hit = np.flatnonzero(mask)
        symbols[hit] = read_group(cur, len(hit), rec.tables[1]) + 1 if rec.K > 1 else 1
    elif rec.coding == 3:
        count = cur.varint()
        need(count <= n, "too many tokens")
        zeros, symbol = np.divmod(read_group(cur, count, rec.tables[0]), rec.K)
        far = np.flatnonzero(zeros >= 1 << rec.rho)
        widths = zeros[far] - (1 << rec.rho) + rec.rho
        zeros[far] = (1 << widths) + read_fields(cur, widths).astype(np.int64)
        hit = np.cumsum(zeros + 1) - 1
        need(not count or hit[-1] < n, "tokens past the end")
        symbols[hit] = symbol + 1
    elif rec.coding == 5:
        second, first = np.divmod(read_group(cur, n + 1 >> 1, rec.tables[0]), rec.K + 1)
        both = np.stack([first, second], 1).ravel()
        need(not both[n:].any(), "a pair goes past the end")
        symbols = both[:n]
    else:
        symbols = bit_fields(cur, np.full(n, rec.K.bit_length())).astype(np.int64)
        need(symbols.max() <= rec.K, "a symbol above K")
    return symbols


# ---- Sections 7 to 9: chunks and arithmetic. Elements are held as uint64 bits, whatever their width.


def ordered(bits, kind):
    """The ordered integers of section 8, plus 2^(width - 1) so that they are unsigned."""
    top, ones = U64(1 << ELEMENT[kind][0] - 1), U64(MASK64 >> 64 - ELEMENT[kind][0])
    return np.where(bits & top, ~bits & ones, bits | top)


def unordered(order, kind):
    """The bits of ordered integers, which wrap in the element's width."""
    top, ones = U64(1 << ELEMENT[kind][0] - 1), U64(MASK64 >> 64 - ELEMENT[kind][0])
    return np.where(order & top, order & ones ^ top, ~order & ones)


def values_of(bits, kind):
    """The values of elements in the type they are computed in: float32, or float64 for f64."""
    if kind == "f64":
        return bits.view("<f8")
    if kind == "f16":
        return bits.astype("<u2").view("<f2").astype("<f4")
    return (bits << U64(16) if kind == "bf16" else bits).astype("<u4").view("<f4")


def round_to(x, kind):
    """The bits of float32 or float64 values, rounded once to an element type, to nearest even."""
    source = "f32" if x.dtype.itemsize == 4 else "f64"
    (size, there, _), mantissa = ELEMENT[source], ELEMENT[kind][1]
    bits = x.view(f"<u{size // 8}").astype(U64)
    if kind == source:
        return bits
    if kind == "f16":
        out = x.astype("<f2").view("<u2").astype(U64)
    else:
        y = x.astype("<f4")
        near = y.view("<u4").astype(U64)
        if source == "f64":  # round to odd in float32 first, which makes the second rounding right
            near -= np.abs(y.astype("<f8")) > np.abs(x)
            near |= y.astype("<f8") != x
        out = near + U64(0x7FFF) + (near >> U64(16) & U64(1)) >> U64(16)
    quiet = U64((1 << 16 - mantissa) - 1 << mantissa - 1)  # exponent field and the highest mantissa bit
    nan = bits >> U64(size - 1) << U64(15) | quiet | bits >> U64(there - mantissa) & U64((1 << mantissa) - 1)
    return np.where(np.isnan(x), nan, out)


def decode_chunk(rec, data, base, n):
    """One coded chunk of kinds 2 to 6 as the bits of its n elements, from the bits of its base."""
    cur, width = Cursor(data), rec.tensor.dtype.width
    where = cur.rising(cur.varint()) if rec.exceptions else []
    need(not where or where[-1] < n, "an exception past the end")
    elements = np.frombuffer(cur.take(len(where) * width), f"<u{width}")
    symbols = read_symbols(cur, rec, n)
    need(not symbols[np.array(where, int)].any(), "an exception has a symbol")
    decode = {2: decode_value, 5: decode_classes, 6: decode_difference}.get(rec.kind, decode_clamped)
    hit = np.flatnonzero(symbols)
    out = base.copy()
    if rec.kind == 5:
        hit, out[:] = hit if rec.coding in (2, 3) else np.arange(n), 0
    out[hit] = decode(cur, rec, symbols[hit], out[hit])
    cur.end()
    out[where] = elements
    return out


def decode_value(cur, rec, symbols, old):
    """Kind 2: a step in the value domain."""
    kind = rec.tensor.dtype.kind
    size, mantissa, number = ELEMENT["f64" if kind == "f64" else "f32"]
    delta = rec.steps[symbols - 1]
    if rec.r:
        field = read_fields(cur, np.full(len(symbols), rec.r)) << U64(mantissa - rec.r)
        delta = rec.signs[symbols - 1] << U64(size - 1) | delta << U64(mantissa) | field
        delta = (delta | U64((1 << mantissa - rec.r) >> 1)).astype(number.replace("f", "u")).view(number)
    return round_to(delta if rec.base == 0 else values_of(old, kind) + delta, kind)


def decode_clamped(cur, rec, symbols, old):
    """Kinds 3 and 4: a step in ordered bits, clamped. Steps saturate at 2^64 - 1, which the clamp makes right."""
    kind, step = rec.tensor.dtype.kind, rec.steps[symbols - 1]
    bits, mantissa, _ = ELEMENT[kind]
    if rec.r:
        size = step.astype(np.int64)
        width = np.minimum(rec.r, size - 1)
        rest = np.minimum(size - 1 - width, 63).astype(U64)
        step = read_fields(cur, width) << rest | U64(1) << rest >> U64(1)
        step = np.where(size > 64, U64(MASK64), step | U64(1) << np.minimum(size - 1, 63).astype(U64))
    middle, largest = 1 << bits - 1, (1 << bits - 1) - (1 << mantissa) - 1
    low, high = U64(middle if rec.kind == 4 else middle - 1 - largest), U64(middle + largest)
    order = ordered(old, kind)
    up = np.where(step > high - np.minimum(order, high), high, order + step)
    down = np.where(step > np.maximum(order, low) - low, low, order - step)
    return unordered(np.clip(np.where(rec.signs[symbols - 1] > 0, down, up), low, high), kind)


def escaped(cur, rec, symbols, lowest, highest):
    """The exponent field or bit length of each symbol but 0, escapes read from the chunk."""
    need(not rec.K or rec.top <= highest, "the top symbol is out of range")
    value, size = rec.top + 1 - symbols, 2 if rec.tensor.dtype.kind == "f64" else 1
    escape = symbols == 15
    value[escape] = np.frombuffer(cur.take(size * np.count_nonzero(escape)), f"<u{size}")
    need(((lowest <= value) & (value <= highest) | (symbols == 0)).all(), "an exponent or bit length is out of range")
    return value


def decode_classes(cur, rec, symbols, old):
    """Kind 5: exponent fields as symbols, mantissa and sign as they are."""
    bits, mantissa, _ = ELEMENT[rec.tensor.dtype.kind]
    exponent = np.where(symbols > 0, escaped(cur, rec, symbols, 0, (1 << bits - 1 - mantissa) - 1), 0).astype(U64)
    raw = read_fields(cur, np.full(len(symbols), mantissa + 1))
    need(not raw[symbols == 0].any(), "a zero element with bits that are not zero")
    low = U64((1 << mantissa) - 1)
    return raw & low | exponent << U64(mantissa) | raw >> U64(mantissa) << U64(bits - 1)


def decode_difference(cur, rec, symbols, old):
    """Kind 6: the exact difference of ordered bits, wrapping."""
    kind = rec.tensor.dtype.kind
    bits = ELEMENT[kind][0]
    size = escaped(cur, rec, symbols, 1, bits)
    raw, high = read_fields(cur, size), U64(1) << (size - 1).astype(U64)
    step, minus = raw & high - U64(1) | high, raw & high > 0
    need((minus & (step == high) | (size < bits)).all(), "a difference is too large")
    return unordered(np.where(minus, ordered(old, kind) - step, ordered(old, kind) + step), kind)


def predicted_base(rec, *data):
    """The bits of section 9's base, from r, s, and t or s'; NumPy rounds every operation to the type of arithmetic."""
    kind = rec.tensor.dtype.kind
    r, s, *t = (values_of(x, kind) for x in data)
    a, b, *c = rec.coefficients
    if rec.formula == 2:
        s = s / (np.sqrt(t[0]) + c[0])
    elif rec.formula == 3:
        s = s - c[0] * t[0]
        s = s * s
    base = a * r + b * s
    size, mantissa, _ = ELEMENT[kind]
    quiet = U64((1 << size - mantissa) - 1 << mantissa - 1)  # sign 0, and of the mantissa the highest bit
    return np.where(np.isnan(base), quiet, round_to(base, kind))


def decode_link(rec, source, data):
    """The bytes of a link: the source's, or each of its elements rounded; content sums checked."""
    mine, other = rec.tensor.dtype, source.dtype
    need(source.count == rec.tensor.count, "a link to a tensor of another size")
    if mine.name != other.name:
        need(other.name in ("float32", "float64") and mine.name in ("float16", "bfloat16"), "a link to another dtype")
        data = round_to(data.view(f"<f{other.width}"), mine.kind).astype("<u2").view(U8)
    else:
        data = data.copy()
    for k, (_, expected) in enumerate(rec.index):
        part = data[k * mine.width << rec.log : (k + 1) * mine.width << rec.log]
        need(content_sum(part) == expected, f"{rec.tensor.path}: chunk {k} does not have its content sum")
    return data


def decode_record(rec, payload, base):
    """The reconstruction of a tensor, as bytes, from its chunks and the bytes of its base (None: zero)."""
    width = rec.tensor.dtype.width
    out = np.zeros(rec.tensor.count * width, U8) if base is None else base.copy()
    for k, (entry, at) in enumerate(zip(rec.index, rec.spans)):
        if entry is None:
            continue
        part = out[k * width << rec.log : (k + 1) * width << rec.log]
        need(at is not None, f"{rec.tensor.path}: chunk {k} is not in the file")
        data = payload[at : at + entry[0]]
        if rec.kind < 7:
            part[:] = decode_chunk(rec, data, elements_of(part, rec), len(part) // width).astype(f"<u{width}").view(U8)
        else:  # stored or one zstd frame, perhaps transposed
            need(len(data) <= len(part), "a chunk is longer than its content")
            raw = np.frombuffer(data if len(data) == len(part) else unzstd(data, len(part)), U8)
            part[:] = raw.reshape(rec.planes, -1).T.ravel() if rec.planes else raw
        need(content_sum(part) == entry[1], f"{rec.tensor.path}: chunk {k} does not have its content sum")
    return out


def elements_of(data, rec):
    """Bytes as the bits of elements."""
    return data.view(f"<u{rec.tensor.dtype.width}").astype(U64)


# ---- Sections 2, 3, 11 and 12: files

META = {
    "sequence": None,
    "step": None,
    "parent": None,
    "schema": None,
    "created": None,
    "values": None,
    "changes": [],
    "rewound": [],
    "policy": None,
    "marks": 0,
    "part": None,
    "extra": [],
}


def read_meta(data):
    """The fields of a snapshot's meta array, with defaults filled in."""
    fields = unpack(data)
    need(isinstance(fields, list) and 5 <= len(fields) <= len(META), "meta: wrong number of fields")
    meta = SimpleNamespace(**{**META, **dict(zip(META, fields))})
    need(
        all(isinstance(x, bytes) and len(x) == 16 for x in [meta.schema] + [meta.parent] * (meta.parent is not None))
        and all(map(is_uint, (meta.sequence, 2 * meta.step, meta.created, meta.marks))),
        "meta: a wrong id or number",
    )
    need(
        all(x is None or isinstance(x, list) for x in (meta.values, meta.policy, meta.part))
        and isinstance(meta.changes, list)
        and isinstance(meta.rewound, list),
        "meta: an array expected",
    )
    need(all(isinstance(pair, list) and len(pair) == 2 for pair in meta.rewound), "meta: ranges")
    places, ranges = meta.changes[::2], [number for pair in meta.rewound for number in pair]
    meta.rewound = ranges
    need(all(map(is_uint, places + ranges)) and not (len(meta.changes) | len(ranges)) & 1, "meta: pairs expected")
    need(all(a < b for a, b in zip(places, places[1:])), "meta: changes do not rise")
    need(all(a <= b if i % 2 == 0 else a + 1 < b for i, (a, b) in enumerate(zip(ranges, ranges[1:]))), "meta: ranges")
    need(not (places and meta.values is not None), "meta: a field that must be empty")
    check_extra(meta.extra)
    return meta


def check_extra(extra):
    """The field `extra`: lossy restores, ages of records, metrics; all for information."""
    need(isinstance(extra, list) and len(extra) <= 3 and (not extra or extra[-1] not in (0, [])), "meta: extra")
    restores, ages, metrics = extra + [0, [], []][len(extra) :]
    need(is_uint(restores) and isinstance(ages, list) and isinstance(metrics, list), "meta: extra")
    need(all(map(is_uint, ages)) and all(ages[1::2]) and not (len(ages) | len(metrics)) & 1, "meta: extra: ages")
    need(all(a < b for a, b in zip(ages[::2], ages[2::2])), "meta: extra: records do not rise")
    names, numbers = metrics[::2], metrics[1::2]
    need(all(isinstance(name, str) for name in names) and len(set(names)) == len(names), "meta: extra: metrics")
    need(all(isinstance(number, float) for number in numbers), "meta: extra: metrics")


def stored_order(records):
    """Numbers of the records as their chunks stand in a file: each after what it is predicted from (section 2)."""
    order, done, path = [], set(), []
    for first, rec in enumerate(records):
        if rec.kind != 1 and first not in done:
            path.append(first)
        while path:
            missing = [n for n in records[path[-1]].beside if n not in done]
            if missing:
                need(missing[0] not in path, "records that need each other")
                path.append(missing[0])
            else:
                done.add(path[-1])
                order.append(path.pop())
    return order + [i for i, rec in enumerate(records) if i not in done]


class File:
    """A complete file: its footer and metadata are checked at once, its payload when it is read."""

    def __init__(self, path):
        self.path, self.entries, self.ready = path, [], False
        with naming(path), open(path, "rb") as stream:
            head, size = stream.read(16), os.fstat(stream.fileno()).st_size
            need(size >= 40 and head[:8] == b"\x89CKPTZ\r\n", "not a ckptz file, or cut off", Incomplete)
            stream.seek(size - 24)
            foot = stream.read(24)
            length, crc = int.from_bytes(foot[8:12], "little"), int.from_bytes(foot[16:], "little")
            self.size, self.crc = size - 40 - length, int.from_bytes(foot[:8], "little")
            stream.seek(max(16, size - 24 - length))
            meta = stream.read(length) if self.size >= 0 else b""
            need(
                self.size >= 0 and foot[12:16] == b"PTZ\n" and crc64(head + meta + foot[:16]) == crc,
                "no valid footer: damaged, or never finished",
                Incomplete,
            )
            self.kind, self.features = head[9], int.from_bytes(head[12:], "little")
            need(head[8] == 1, f"format version {head[8]} is unknown to this reader")
            need(not self.features >> 6, f"features {self.features:#x} need a reader of revision {head[10]}")
            kinds = (3, 4) if self.features & 4 else (1, 2)
            need(self.kind in kinds and head[11] == 0, "an unknown kind of file")
            self.read_entries(Cursor(meta))

    def read_entries(self, cur):
        """The snapshots of the file: each with file, meta, headers, schema, hidden, absent and id."""
        count = cur.varint()
        many = self.kind == 1 and self.features & 1
        need(count == 1 or (many and 1 < count <= cur.left()), "a wrong number of snapshots")
        for _ in range(count):
            flags, raw, headers = cur.varint(), cur.blob(), cur.blob()
            need(flags < 8 and (self.kind != 2 or not flags & 1), "unknown flags of a snapshot")
            meta = read_meta(raw)
            entry = SimpleNamespace(file=self, meta=meta, headers=headers, hidden=bool(flags & 2))
            entry.id = digest(b"ckptz 1\0" + b"".join(struct.pack("<Q", len(x)) + x for x in (raw, headers)))
            entry.schema = cur.blob() if flags & 1 else None
            need(entry.schema is None or digest(b"ckptz schema 1\0" + entry.schema) == meta.schema, "a wrong schema")
            entry.absent = set(cur.rising(cur.varint())) if flags & 4 else set()
            need(not meta.extra or self.features & 8, "a field `extra` without its feature bit")
            need(self.kind != 2 or (meta.parent and meta.values is None), "a wrong residual")
            self.entries.append(entry)
        cur.end()
        numbers = [entry.meta.sequence for entry in self.entries]
        need(all(a < b for a, b in zip(numbers, numbers[1:])), "snapshots out of order")

    def payload(self):
        """All the chunks; the CRC is checked."""
        with naming(self.path), open(self.path, "rb") as stream:
            stream.seek(16)
            data = stream.read(self.size)
            need(len(data) == self.size and crc64(data) == self.crc, "the payload is damaged (CRC)")
            return memoryview(data)

    def read_headers(self, tensors_of):
        """Read the record headers of every snapshot and find each chunk's place in the payload."""
        order, jobs, at = {}, [], 0
        for number, entry in enumerate(self.entries):
            tensors, cur = tensors_of(entry), Cursor(entry.headers)
            mode = "residual" if self.kind == 2 else "delta" if entry.meta.parent else "full"
            entry.records = [read_record(cur, t, len(tensors), mode) for t in tensors]
            cur.end()
            for rec in entry.records:
                need(rec.base != 2 or self.features & 2, "a predicted base without the feature bit")
                need(rec.coding != 5 or self.features & 16, "coding pairs without the feature bit")
                rec.spans, rec.place = [None] * len(rec.index), order.setdefault(rec.tensor.key, len(order))
            for i in stored_order(entry.records):
                rec = entry.records[i]
                if i not in entry.absent and rec.kind > 1:
                    jobs += [(rec.place, k << rec.log, number, k, rec) for k, x in enumerate(rec.index) if x]
        if len(self.entries) > 1:
            jobs.sort(key=lambda job: job[:3])
        for _, _, _, k, rec in jobs:
            rec.spans[k] = at
            at += rec.index[k][0]
        need(at == self.size, "the payload's length is not the sum of its chunks'")
        self.ready = True


# ---- Section 10: stores


class State(dict):
    """Key path -> array or plain value; `dtypes`: the dtype name of every tensor; `step`."""

    def __init__(self, step):
        super().__init__()
        self.dtypes, self.step = {}, step


class Layer:
    """The records of one snapshot (of all its parts) or residual, on top of the layer before."""

    def __init__(self, pieces, before, own=False):
        self.records, self.find, self.before, self.own, self.wanted = [], {}, before, own, set()
        for rank, piece in enumerate(pieces):
            first = len(self.records)
            for rec in piece.records:
                for key in (rec.tensor.key, (rank, rec.tensor.key)):
                    self.find.setdefault(key, len(self.records))
                self.records.append((rec, [first + n for n in rec.beside], rank, piece.file))

    def base(self, i):
        """The number of record i's base in the layer before: of the same part, where several have such a tensor."""
        rec, _, rank, _ = self.records[i]
        find = self.before.find if self.before else {}
        found = i if self.own else find.get((rank, rec.tensor.key), find.get(rec.tensor.key))
        need(found is not None, f"{rec.tensor.path}: its base is not in the parent")
        return found

    def want(self, numbers):
        """Mark records, and what they need beside them, to be decoded; returns what they need in the layer before."""
        below, todo = [], list(numbers)
        while todo:
            i = todo.pop()
            if i not in self.wanted:
                self.wanted.add(i)
                rec, beside, *_ = self.records[i]
                todo += beside
                below += [self.base(n) for n in [i] * (rec.base > 0) + beside[: rec.formula == 3]]
        return below

    def decode(self, payload):
        """The bytes of all wanted records, as self.data."""
        self.data = {}
        for i in sorted(self.wanted):
            self.decode_one(i, payload, ())
        if self.before:
            self.before.data = None  # no longer needed

    def decode_one(self, i, payload, outer):
        """Decode record i once, after those it needs beside it (`outer`: the records that need this one)."""
        rec, beside, _, file = self.records[i]
        if i in self.data:
            return
        need(i not in outer, "records that need each other")
        for n in beside:
            self.decode_one(n, payload, (*outer, i))
        with naming(file.path):
            base = self.before.data[self.base(i)] if rec.base else None
            if rec.kind == 1:
                source = self.records[beside[0]][0]
                need(source.kind != 1, "a link to a link")
                self.data[i] = decode_link(rec, source.tensor, self.data[beside[0]])
                return
            if rec.base == 2:
                like = [self.records[n][0].tensor for n in beside]
                need(
                    all((t.dtype.kind, t.count) == (rec.tensor.dtype.kind, rec.tensor.count) for t in like),
                    "a predicted base from tensors of another size or type",
                )
                data = [base, *(self.data[n] for n in beside)]
                data += [self.before.data[self.base(n)] for n in beside[: rec.formula == 3]]
                bits = predicted_base(rec, *(elements_of(x, rec) for x in data))
                base = bits.astype(f"<u{rec.tensor.dtype.width}").view(U8)
            self.data[i] = decode_record(rec, payload(file) if any(rec.index) else b"", base) if rec.kind else base


class Store:
    """A directory of ckptz files, or one file, read from their contents; `skipped` lists incomplete files."""

    def __init__(self, directory):
        self.name, self.skipped, self.cache = directory, [], (None, None)
        self.snapshots, self.residuals, self.parts, self.schemas = {}, {}, {}, {}
        self.dropped = set()  # ids, or the first halves of ids, that marks name
        single = not os.path.isdir(directory)
        for name in [""] if single else sorted(os.listdir(directory)):
            if single or (name.endswith(".ckptz") and not name.startswith(".tmp-")):
                try:
                    file = File(directory if single else os.path.join(directory, name))
                except Incomplete as error:
                    need(not single, str(error))
                    self.skipped.append(str(error))
                else:
                    self.add(file)
            elif name.endswith(".hidden"):
                self.add_mark(name)
        parents = {entry.meta.parent for entry in self.snapshots.values()}
        own = {k: e for k, e in self.snapshots.items() if k in parents or e.meta.parent or e.meta.policy or e.meta.part}
        self.snapshots = own or self.snapshots  # without files of their own that lie among them

    def add_mark(self, name):
        """Note which snapshot a mark drops: its content tells, and its name."""
        with open(os.path.join(self.name, name), "rb") as stream:
            content = re.fullmatch(b"([0-9a-f]{32})\n", stream.read(34))
        named = re.fullmatch(rb"[0-9]{10,}-([0-9a-f]{16})\.hidden", os.fsencode(name))
        self.dropped.update(bytes.fromhex(found[1].decode()) for found in (content, named) if found)

    def add(self, file):
        """Note what a file holds, by id (residuals: by the id of what they correct)."""
        table = {1: self.snapshots, 2: self.residuals, 3: self.parts, 4: self.snapshots}[file.kind]
        for entry in file.entries:
            if entry.schema is not None:
                self.schemas[entry.meta.schema] = entry.schema
            if file.kind == 4:
                with naming(file.path):
                    ranks, _, digests, _ = entry.meta.part
                    need(len(digests) == ranks > 0, "a wrong commit")
                    if ranks == 1:  # the snapshot is its only part
                        entry.id = digests[0]
            key = entry.meta.parent if file.kind == 2 else entry.id
            other = table.setdefault(key, entry)  # of two copies, the one that can do more
            if (entry.hidden, len(entry.absent)) < (other.hidden, len(other.absent)):
                table[key] = entry

    def pieces(self, entry):
        """The entries that hold a snapshot's records: itself, or its parts."""
        if entry.file.kind != 4:
            return [entry]
        with naming(entry.file.path):
            ranks, nonce, digests, names = entry.meta.part
            need(ranks == len(digests) == len(names) and not entry.headers and not entry.file.size, "a wrong commit")
            need(all(d in self.parts for d in digests), "a part of the commit is not here")
            pieces = [self.parts[d] for d in digests]
            need(all(p.meta.part == [rank, ranks, nonce] for rank, p in enumerate(pieces)), "a part of another commit")
            return pieces

    def schema(self, entry):
        """The parsed schema that an entry names."""
        found = self.schemas.get(entry.meta.schema)
        need(found is not None, "its schema is in no file here")
        if isinstance(found, bytes):
            found = self.schemas[entry.meta.schema] = Schema(found)
        return found

    def tensors(self, entry):
        """The tensors that the records of an entry are for."""
        if entry.file.kind != 2:
            return self.schema(entry).tensors
        need(entry.meta.parent in self.snapshots, "the snapshot of this residual is not here")
        return [t for piece in self.pieces(self.snapshots[entry.meta.parent]) for t in self.schema(piece).tensors]

    def line(self):
        """The snapshots on the newest one's line that can be restored, in order of sequence."""
        every = sorted(self.snapshots.values(), key=lambda entry: entry.meta.sequence)
        rewound, good, line = every[-1].meta.rewound if every else [], set(), []
        for entry in every:  # a parent comes before its children
            try:
                ok = entry.meta.parent is None or entry.meta.parent in good
                ok = ok and bool(self.pieces(entry))
            except FormatError:
                ok = False
            away = any(a <= entry.meta.sequence <= b for a, b in zip(rewound[::2], rewound[1::2]))
            if ok:
                good.add(entry.id)
            away = away or entry.hidden or not self.dropped.isdisjoint((entry.id, entry.id[:8]))
            if ok and not away:
                line.append(entry)
        return line

    def steps(self):
        """The steps that can be restored."""
        return sorted({entry.meta.step for entry in self.line()})

    def payload(self, file):
        """The payload of a file; the last one read is kept."""
        if self.cache[0] is not file:
            self.cache = file, file.payload()
        return self.cache[1]

    def restore(self, step=None, residual=True):
        """The state at a step (default: the newest), exact where its residual is here and wanted."""
        found = [entry for entry in self.line() if step in (None, entry.meta.step)]
        need(found, f"{self.name}: no snapshot that can be restored" + ("" if step is None else f" at step {step}"))
        chain, layer, layers = found[-1:], None, []
        while chain[0].meta.parent is not None:
            chain.insert(0, self.snapshots[chain[0].meta.parent])
        last = self.residuals.get(chain[-1].id) if residual else None
        with naming(chain[-1].file.path):
            for entry in chain + [last] * (last is not None):
                pieces = self.pieces(entry)
                for piece in pieces:
                    with naming(piece.file.path):
                        if not piece.file.ready:
                            piece.file.read_headers(self.tensors)
                layer = Layer(pieces, layer, entry is last)
                layers.append(layer)
            numbers = range(len(layer.records))
            for layer in layers[::-1]:
                numbers = layer.want(numbers)
            for layer in layers:
                layer.decode(self.payload)
            self.cache = None, None
            return self.state(chain, layer.data)

    def values(self, chain, rank):
        """The plain values of a chain's last snapshot: from the last one that has all, with the changes since."""
        metas = []
        for entry in chain[::-1]:
            metas.append(self.pieces(entry)[rank].meta)
            need(metas[-1].schema == metas[0].schema, "plain values from a parent of another schema")
            if metas[-1].values is not None:
                break
        values = list(metas[-1].values or [])
        for meta in metas[::-1]:
            for place, value in zip(meta.changes[::2], meta.changes[1::2]):
                values[place] = value
        need(not any(isinstance(v, list) for v in values), "an array among the plain values")
        return values

    def state(self, chain, data):
        """Put values and tensors together under their key paths."""
        out, shards, first = State(chain[-1].meta.step), {}, 0
        for rank, piece in enumerate(self.pieces(chain[-1])):
            schema, values = self.schema(piece), self.values(chain, rank)
            need(len(values) == schema.values, "a wrong number of plain values")
            arrays = [tensor.array(data[first + i]) for i, tensor in enumerate(schema.tensors)]
            first += len(arrays)
            for path, what, number in schema.leaves:
                if what == "value":
                    out[path] = values[number]
                    continue
                tensor, out[path] = schema.tensors[number], arrays[number]
                out.dtypes[path] = tensor.dtype.name
                if tensor.whole != tensor.shape:
                    shards.setdefault(path, []).append((tensor, arrays[number]))
        for path, parts in shards.items():
            out[path] = assemble(path, parts)
        return out


def assemble(path, shards):
    """One array of the global shape from the pieces that processes wrote."""
    whole, dtype = shards[0][0].whole, shards[0][0].dtype
    need(all((t.whole, t.dtype) == (whole, dtype) for t, _ in shards), f"{path}: pieces of different tensors")
    need(sum(math.prod(t.shape) for t, _ in shards) >= math.prod(whole), f"{path}: a piece is missing")
    out, seen = np.ndarray(whole, dtype.numpy), np.zeros(whole, bool)
    for tensor, array in shards:
        where = tuple(slice(o, o + n) for o, n in zip(tensor.offset, tensor.shape))
        out[where], seen[where] = array, True
    need(seen.all(), f"{path}: a piece is missing")
    return out


def read_file(path):
    """The state of the (last) snapshot in one file that needs no other file."""
    return Store(path).restore(residual=False)


def read_array(data, base=None):
    """The array in an array frame (section 16); `base`: the array it was encoded against, as this reader gives it."""
    with naming("array frame"):
        need(len(data) >= 16 and data[:4] == b"CKA\x01", "not an array frame")
        need(crc64(data[:-8]) == int.from_bytes(data[-8:], "little"), "damaged (CRC)")
        end = len(data) - 12 - int.from_bytes(data[-12:-8], "little")
        need(end >= 4, "the data ends early")
        name, shape, header, *crc = unpack(data[end:-12])
        tensor, cur = Tensor("array", [None, 17, name, shape, 0]), Cursor(header)
        rec, at, old = read_record(cur, tensor, 1, "frame"), 4, None
        cur.end()
        for chunk in rec.index:
            rec.spans.append(at)
            at += chunk[0] if chunk else 0
        need(at == end, "chunks of another length")
        if rec.base:
            need(base is not None and (base.shape, base.dtype) == (tensor.shape, tensor.dtype.numpy), "no fitting base")
            old = np.frombuffer(base.tobytes(), U8)
        content = decode_record(rec, data, old)
        need(not crc or crc == [crc64(bytes(content))], "another base than it was coded against")
        return tensor.array(content)


# ---- The command


def write_npz(path, state):
    """One .npy a leaf ('|' for '/'; values that NumPy cannot hold: as text); `~dtypes`: dtypes NumPy lacks, as JSON."""
    foreign = {p: name for p, name in state.dtypes.items() if state[p].dtype.name != name and name[0] not in "<|"}
    with zipfile.ZipFile(path, "w") as archive:
        for key, value in {**state, "~dtypes": json.dumps(foreign)}.items():
            array = np.asarray(value)
            if array.dtype == object or (isinstance(value, (str, bytes)) and key != "~dtypes"):
                array = np.array(ascii(value))
            name = key.replace("/", "|").encode("utf-8", "backslashreplace").decode()
            with archive.open(name + ".npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)


def main():
    parser = argparse.ArgumentParser(description="Read ckptz checkpoints without ckptz.")
    parser.add_argument("path", help="a store's directory, or one file with a full snapshot")
    parser.add_argument("--step", type=int, help="the step to restore (default: the newest)")
    parser.add_argument("--no-residual", action="store_true", help="leave the residual away, even where there is one")
    parser.add_argument("-o", "--output", help="write the state to this .npz")
    args = parser.parse_args()
    try:
        store = Store(args.path)
        for error in store.skipped:
            print(f"skipped: {error}", file=sys.stderr)
        print("steps:", *store.steps())
        state = store.restore(args.step, not args.no_residual)
        print(f"step {state.step}:")
        for path, value in state.items():
            tensor = path in state.dtypes
            print(f"  {path}:", f"{state.dtypes[path]} {list(value.shape)}" if tensor else ascii(value))
        if args.output:
            write_npz(args.output, state)
    except (FormatError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
