"""Pickles made to run something, to read what they should not, or to use up memory and time.

Each must be a typed error, at once, and nothing may have run.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ckptz.errors import CkptzError, FormatError, UnsupportedTypeError
from inputs_files import (
    ARRAY,
    ENCODE,
    OD,
    integer,
    storage,
    survives,
    tensor,
    text,
    torch_legacy,
    torch_zip,
)

WRAP = pytest.mark.parametrize("wrap", [torch_zip, torch_legacy], ids=["zip", "legacy"])


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    ran: list[object] = []
    for owner, name in [(os, "system"), (os, "popen"), (subprocess, "Popen"), (pickle, "loads")]:
        monkeypatch.setattr(owner, name, lambda *args, **_: ran.append(args))
    monkeypatch.setattr("builtins.eval", lambda *args: ran.append(args))
    yield
    assert not ran


def short(value: str) -> bytes:
    return b"\x8c" + bytes([len(value.encode())]) + value.encode()


NAMES = [
    ("os", "system"), ("posix", "system"), ("nt", "system"), ("subprocess", "Popen"),
    ("builtins", "eval"), ("builtins", "exec"), ("builtins", "getattr"), ("builtins", "open"),
    ("builtins", "__import__"), ("builtins", "set"), ("builtins", "object"), ("builtins", "type"),
    ("__builtin__", "eval"), ("__main__", "MyModel"), ("operator", "attrgetter"),
    ("functools", "partial"), ("importlib", "import_module"), ("runpy", "run_path"),
    ("pickle", "loads"), ("_pickle", "loads"), ("marshal", "loads"), ("copyreg", "_reconstructor"),
    ("copy_reg", "_reconstructor"), ("codecs", "encode"), ("_codecs", "decode"),
    ("torch", "load"), ("torch.hub", "load"), ("torch.storage", "_load_from_bytes"),
    ("torch._utils", "_rebuild_qtensor"), ("torch.jit", "load"), ("numpy", "load"),
    ("numpy", "fromfile"), ("numpy.testing._private.utils", "runstring"),
    ("collections", "namedtuple"), ("collections", "OrderedDict.__init__"),
    ("torch._utils", "_rebuild_tensor_v2.__globals__"), ("torch", "_utils.sys"), ("", ""),
    ("os\x00", "system"), ("\u00f6s", "system"), ("pathlib", "PosixPath"),
    ("argparse", "Namespace"), ("datetime", "datetime"), ("torch", "NoStorage"),
    ("evil", "FloatStorage"), ("x" * 255, "y"),
]  # fmt: skip


@WRAP
@pytest.mark.parametrize(("module", "name"), NAMES)
def test_no_other_global(tmp_path: Path, wrap: Any, module: str, name: str) -> None:
    marker = tmp_path / "ran"
    args = text(f"touch {marker}") + b"\x85"
    line = f"{module}\n{name}\n".encode()
    for body in (
        b"c" + line + args + b"R",
        short(module) + short(name) + b"\x93" + args + b"R",
        short(module) + short(name) + b"\x93" + args + b"\x81",
        short(module) + short(name) + b"\x93" + args + b"}\x92",
        b"(" + text(f"touch {marker}") + b"i" + line,
        b"(c" + line + text(f"touch {marker}") + b"o",
        b"c" + line + b"N" + b"b",
        b"c" + line,
        b"]c" + line + b"a",
    ):
        error = survives(tmp_path / "a", wrap(b"\x80\x04" + body + b"."))
        assert isinstance(error, UnsupportedTypeError)
        assert "the pickle needs `" in str(error) or name == "" or module == "builtins"
        assert not marker.exists()


def test_the_message_names_the_class_and_what_to_do(tmp_path: Path) -> None:
    error = survives(tmp_path / "m.pt", torch_zip(b"\x80\x02c__main__\nMyModel\n)\x81."))
    assert str(error) == (
        f"{tmp_path / 'm.pt'}: the pickle needs `__main__.MyModel`, which is not a tensor or plain "
        "value; save model.state_dict() instead"
    )


REFUSED = {
    "NEWOBJ of an allowed one": OD + b")\x81",
    "NEWOBJ_EX of an allowed one": OD + b")}\x92",
    "OBJ of an allowed one": b"(" + OD + b"o",
    "INST of an allowed one": b"(icollections\nOrderedDict\n",
    "EXT1": b"\x82\x01",
    "EXT2": b"\x83\x01\x00",
    "EXT4": b"\x84\x01\x00\x00\x00",
    "EMPTY_SET": b"\x8f",
    "FROZENSET": b"(\x91",
    "attributes of a dict": b"}}b",
    "attributes of an OrderedDict": OD + b")R}" + text("__class__") + b"Nsb",
    "a state of an OrderedDict that is no dict": OD + b")R" + text("x") + b"b",
    "a module": b"(" + text("module") + OD + text("f") + text("s") + b"tQ",
    "a global as a value": OD,
    "a storage as a value": storage(),
    "a dtype as a value": b"cnumpy\ndtype\n" + text("f4") + b"\x85R",
    "an array without its state": b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
    b"K\x00\x85C\x01b\x87R",
    "a tuple as a key": b"}K\x01K\x02\x86K\x03s",
    "a float as a key": b"}G?\xf0\0\0\0\0\0\0K\x03s",
    "a long integer as a key": b"}" + integer(2**70) + b"K\x03s",
    "a global as a key": b"}" + OD + b"K\x03s",
    "a call of a factory": b"c__builtin__\nint\n" + text("9" * 99) + b"\x85R",
    "a factory that is a function": b"ccollections\ndefaultdict\n" + ENCODE + b"\x85R",
    "a subclass of an array": b"cnumpy.core.multiarray\n_reconstruct\n" + OD
    + b"K\x00\x85C\x01b\x87R",
    "an array of objects": b"cnumpy\ndtype\n" + text("O8") + b"\x85R(K\x03"
    + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb0cnumpy.core.multiarray\nscalar\n"
    b"cnumpy\ndtype\n" + text("O8") + b"\x85RC\x00\x86R",
    "a class of tensors": b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n"
    b"_rebuild_tensor_v2\n" + OD + b")}tR",
    "a function of a tensor of a class": b"ctorch._tensor\n_rebuild_from_type_v2\n(" + ENCODE
    + b"ctorch\nTensor\n)}tR",
    "a lazy conjugate": tensor()[:-2] + b"}" + text("conj") + b"\x88stR",
}  # fmt: skip

DAMAGED = {
    "nothing": b"",
    "no value": b"0",
    "an unknown opcode": b"\xff",
    "a text persistent id": b"Pos.system\n",
    "texts of protocol 0": b"S'a'\n",
    "a buffer that is not there": b"\x97",
    "protocol 9": b"\x80\x09N",
    "a value that is not in the memo": b"h\x07",
    "a memo of nothing": b"q\x00",
    "a list without a mark": b"e",
    "a pop through a mark": b"(Na",
    "items of a list": b"]K\x01K\x02s",
    "an append to a dict": b"}K\x01a",
    "an odd number of items": b"}(K\x01u",
    "a call of text": text("os.system") + b")R",
    "a call with a list": OD + b"]R",
    "a call of a number": b"K\x01)R",
    "names that are no text": b"K\x01K\x02\x93",
    "a number that is none": b"Ix\n",
    "a line without an end": b"I1111",
    "a long number": b"I" + b"9" * 5000 + b"\n",
    "a huge text": b"\x8d" + struct.pack("<Q", 2**62) + b"a",
    "a huge integer": b"\x8b\xff\xff\xff\x7f\x01",
    "huge bytes": b"\x8e" + struct.pack("<Q", 2**62),
    "a frame past the end": b"\x95\x01",
    "a text that is not UTF-8": b"X\x01\0\0\0\xff",
    "bytes that are not latin-1": ENCODE + text("\u0100") + text("latin1") + b"\x86R",
    "another encoding": ENCODE + text("a") + text("rot13") + b"\x86R",
    "pairs that are none": OD + b"]K\x01a\x85R",
    "a tensor from a tuple": b"ctorch._utils\n_rebuild_tensor_v2\n)R",
    "a list that holds itself": b"]q\0h\0a",
    "a dict that holds itself": b"}q\0" + text("a") + b"h\0s",
    "values left over": b"NN",
    "a mark left over": b"N(N",
    **{
        f"a persistent id {name}": body + b"Q"
        for name, body in {
            "of nothing": b")", "None": b"N", "of text": text("storage"), "of a number": b"K\x05",
            "in a list": b"]", "of another kind": text("x") + b"\x85", "cut short": text("storage")
            + b"\x85", "with a global": b"(" + text("storage") + OD + b"NNNt", "without a class":
            b"(" + text("storage") + text("FloatStorage") + text("0") + text("cpu") + b"K\x04t",
            "nested": tensor() + b"\x85", "with a path": storage("../../../etc/passwd")[:-1],
            "with a negative size": storage(count=-4)[:-1], "with a huge size":
            storage(count=2**80)[:-1], "that is too long": storage()[:-2] + b"NNNt",
        }.items()
    },
}  # fmt: skip

# An array's == has no truth value: wherever a text or number is compared, an array must not crash.
COMPARED = {
    "encoding": ENCODE + text("a") + ARRAY + b"\x86R",
    "factory": b"ccollections\ndefaultdict\n" + ARRAY + b"\x85R",
    "order": b"cnumpy.core.numeric\n_frombuffer\n(C\0N)" + ARRAY + b"tR",
    "dtype": b"cnumpy\ndtype\n" + ARRAY + b"\x85R",
    "dtype's state": b"cnumpy\ndtype\n" + text("M8") + b"\x85R(" + ARRAY * 9 + b"tb",
    "dtype's order": b"cnumpy\ndtype\n" + text("M8") + b"\x85R(K\x03" + ARRAY + b"NNNNNNtb",
    "dtype's unit": b"cnumpy\ndtype\n" + text("M8") + b"\x85R(K\x04" + text("<")
    + b"NNNNNNN(C\x02ns" + ARRAY * 3 + b"t\x86tb",
    "array's state": b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\x01b\x87R("
    + ARRAY * 5 + b"tb",
    "size": tensor(size=ARRAY),
    "stride": tensor(stride=ARRAY),
    "bits": tensor()[:-2] + ARRAY + b"tR",
    "bits inside": tensor()[:-2] + b"}" + text("conj") + ARRAY + b"stR",
    "torch dtype": b"ctorch._utils\n_rebuild_tensor_v3\n(" + storage() + b"K\0)))N" + ARRAY + b"tR",
    "persistent id": b"(" + ARRAY * 5 + b"tQ",
    "layout": b"ctorch.serialization\n_get_layout\n" + ARRAY + b"\x85R",
    "device": b"ctorch\ndevice\n" + ARRAY + b"\x85R",
    "key": b"}" + ARRAY + b"Ns",
    "name": ARRAY + ARRAY + b"\x93",
    "OrderedDict's state": OD + b")R" + ARRAY + b"b",
    "view": b"(" + storage()[1:-2] + b"(" + ARRAY * 3 + b"ttQ",
}  # fmt: skip


@WRAP
@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path: Path, wrap: Any, name: str) -> None:
    error = survives(tmp_path / "a", wrap(b"\x80\x02" + REFUSED[name] + b"."))
    assert isinstance(error, UnsupportedTypeError), error


@WRAP
@pytest.mark.parametrize("name", DAMAGED)
def test_damaged(tmp_path: Path, wrap: Any, name: str) -> None:
    error = survives(tmp_path / "a", wrap(b"\x80\x02" + DAMAGED[name] + b"."))
    assert isinstance(error, FormatError), error


@WRAP
@pytest.mark.parametrize("name", COMPARED)
def test_arrays_in_odd_places(tmp_path: Path, wrap: Any, name: str) -> None:
    error = survives(tmp_path / "a", wrap(b"\x80\x02" + COMPARED[name] + b"."))
    assert isinstance(error, CkptzError)
