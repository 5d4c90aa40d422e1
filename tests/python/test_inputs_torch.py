"""Reading what torch.save wrote, old format and new: committed files, and live ones."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import struct
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ckptz.errors import FormatError, UnsupportedTypeError
from ckptz.inputs import open_input
from ckptz.inputs.torch_tensors import TensorGlobals
from ckptz.state import flatten
from inputs_files import (
    DATA,
    ENCODE,
    OD,
    STORAGES,
    integer,
    integers,
    state_of,
    storage,
    survives,
    tensor,
    text,
    torch_legacy,
    torch_zip,
)

BOTH = pytest.mark.parametrize("suffix", ["", "_legacy"])
WRAP = pytest.mark.parametrize("wrap", [torch_zip, torch_legacy], ids=["zip", "legacy"])


@BOTH
def test_nothing_but_the_arrays_keeps_the_pages(suffix: str) -> None:
    """Without the collector of cycles: pages of many files would pile up until it runs."""
    gc.collect()
    gc.disable()
    try:
        for path in DATA.glob(f"*{suffix}.pt"):
            with contextlib.suppress(UnsupportedTypeError), open_input(path) as file:
                file.state()
        assert not [one for one in gc.get_objects() if isinstance(one, TensorGlobals)]
    finally:
        gc.enable()


def load(name: str) -> Any:
    with open_input(DATA / f"{name}.pt") as file:
        assert file.metadata == {}
        return file.state()


@BOTH
def test_training_state(suffix: str) -> None:
    state = load(f"training{suffix}")
    model: Any = state["model"]
    optimizer = state["optimizer"]
    assert type(model) is OrderedDict
    assert list(model) == [
        "first.weight", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var",
        "norm.num_batches_tracked", "tied.weight",
    ]  # fmt: skip
    # Adam's first step with a gradient of one takes the learning rate from each weight.
    assert np.allclose(model["first.weight"], np.arange(9.0).reshape(3, 3) - 0.5)
    assert model["norm.num_batches_tracked"].shape == ()
    assert model["norm.num_batches_tracked"].dtype == np.int64
    assert vars(model)["_metadata"]["norm"] == {"version": 2}
    moments = optimizer["state"][0]
    assert np.allclose(moments["exp_avg"], 0.1)
    assert np.allclose(moments["exp_avg_sq"], 0.001)
    assert moments["step"].tolist() == 1.0
    assert optimizer["param_groups"][0]["params"] == [0, 1, 2]
    assert optimizer["param_groups"][0]["betas"] == (0.9, 0.999)
    assert state["schedule"]["milestones"] == Counter([2, 4])
    assert type(state["schedule"]["milestones"]) is Counter
    assert state["numpy_rng"] == np.random.Generator(np.random.PCG64(7)).bit_generator.state
    digest = hashlib.sha256(state["rng"].tobytes()).hexdigest()
    assert digest[:16] == RNG_DIGEST
    assert state["step"] == 1


RNG_DIGEST = "cb966d293e325016"


@BOTH
def test_tied_weights_stay_tied(suffix: str) -> None:
    model = load(f"training{suffix}")["model"]
    assert np.shares_memory(model["first.weight"], model["tied.weight"])
    assert len(flatten(model).arrays) == 6


@BOTH
def test_kinds_of_tensors(suffix: str) -> None:
    state = load(f"kinds{suffix}")
    assert state["bfloat16"].dtype == ml_dtypes.bfloat16
    assert state["bfloat16"].tolist() == [1.0, -2.5, float(ml_dtypes.bfloat16(3e38))]
    assert state["float8"].dtype == ml_dtypes.float8_e4m3fn
    assert state["float8"].tolist() == [1.0, -2.0]
    assert state["uint16"].tolist() == [1, 65535]
    assert state["complex"].tolist() == [1 + 2j, -3j]
    assert state["bool"].tolist() == [True, False]
    assert (state["half"].shape, state["half"].dtype) == ((), np.float16)
    assert (state["empty"].shape, state["empty"].dtype) == ((0, 5), np.float32)
    assert state["parameter"].tolist() == [7.0]
    assert state["transposed"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert state["strided"].tolist() == [1, 3, 5]
    assert state["expanded"].tolist() == [[9] * 3] * 2
    for name in ("transposed", "strided"):
        assert np.shares_memory(state[name], state["whole"])
    assert not state["whole"].flags.writeable


@BOTH
def test_kinds_of_values(suffix: str) -> None:
    state = load(f"kinds{suffix}")
    assert state["size"] == (2, 3)
    assert state["device"] == "cuda:1"
    assert state["dtype"] == "torch.float32"
    assert state["bytes"] == b"a\xff"
    assert state["list"] == [1, -2.5, None, True, 2**100, "\u00e9", 1 + 2j]
    assert state["array"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert state["array"].flags.f_contiguous
    assert type(state["scalar"]) is np.float32
    assert (state[5], state["5"]) == ("an integer key", "a text key")


def test_a_pickled_module_says_what_to_save(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTypeError, match=r"module\.pt.*`torch\.nn\.modules\.linear\."):
        load("module")


@WRAP
def test_damaged_tensors_and_storages(tmp_path: Path, wrap: Any) -> None:
    bad = {
        "past the end": tensor(offset=1),
        "a negative offset": tensor(offset=-1),
        "a negative size": tensor(size=integers(-1)),
        "a negative stride": tensor(size=integers(2), stride=integers(-1)),
        "an offset that overflows": tensor(offset=2**63 - 1),
        "a huge size": tensor(size=integers(2**62)),
        "a product that overflows": tensor(size=integers(2**32, 2**32), stride=integers(0, 0)),
        "sizes of a long product": tensor(size=integers(*[2**59] * 64), stride=integers(*[0] * 64)),
        "too many dimensions": tensor(size=integers(*[1] * 65), stride=integers(*[1] * 65)),
        "no stride": tensor(stride=b")"),
        "a stride that is no tuple": tensor(stride=b"K\x01"),
        "a size of booleans": tensor(size=b"\x88\x85"),
        "no storage": tensor(store=b"N"),
        "a larger storage": tensor(store=storage(count=5)),
        "a smaller storage": tensor(store=storage(count=3)),
        "another dtype": tensor(store=storage(kind="DoubleStorage")),
    }
    assert state_of(tmp_path / "a", wrap(b"\x80\x02" + tensor() + b".")).tolist() == [1, 2, 3, 4]
    for name, pickle in bad.items():
        error = survives(tmp_path / "a", wrap(b"\x80\x02" + pickle + b"."))
        assert isinstance(error, FormatError), name
    error = survives(
        tmp_path / "a", wrap(b"\x80\x02" + tensor(storage(kind="QInt8Storage")) + b".")
    )
    assert isinstance(error, UnsupportedTypeError)
    assert "quantized" in str(error)


def test_small_storages_may_be_expanded_but_not_without_end(tmp_path: Path) -> None:
    wide = tensor(size=integers(1000, 1000), stride=integers(0, 0))
    assert state_of(tmp_path / "a", torch_zip(b"\x80\x02" + wide + b".")).shape == (1000, 1000)
    wider = tensor(size=integers(2**15, 2**15), stride=integers(0, 0))
    assert "far more bytes" in str(survives(tmp_path / "a", torch_zip(b"\x80\x02" + wider + b".")))


def test_big_endian_archives(tmp_path: Path) -> None:
    data = {"0": struct.pack(">4f", 1, 2, 3, 4), "1": bytes.fromhex("3f80c020")}
    brain = tensor(storage("1", 2, "BFloat16Storage"), size=b"K\x02\x85")
    pickle = b"\x80\x02" + tensor() + brain + b"\x86."
    plain, small = state_of(tmp_path / "a", torch_zip(pickle, data, order="big"))
    assert plain.tolist() == [1, 2, 3, 4]
    assert small.tolist() == [1.0, -2.5]
    assert "byte order" in str(survives(tmp_path / "a", torch_zip(pickle, data, order="odd")))


def test_archives_that_are_not_torchs(tmp_path: Path) -> None:
    pickle = b"\x80\x02" + tensor() + b"."
    for data, what in [
        (torch_zip(pickle, method=8), "is compressed"),
        (torch_zip(pickle, storages={}), "there is no member"),
        (torch_zip(pickle + b"x"), "bytes follow"),
    ]:
        assert what in str(survives(tmp_path / "a", data))


def test_a_program_says_what_to_save(tmp_path: Path) -> None:
    script = torch_zip(b"\x80\x02N.", {}, extra={"constants.pkl": b""})
    error = survives(tmp_path / "a", script)
    assert isinstance(error, UnsupportedTypeError)
    assert "TorchScript" in str(error)


def test_views_of_storages_in_old_files(tmp_path: Path) -> None:
    view = b"(" + text("view") + integer(1) + integer(2) + b"t"
    store = storage()[:-2] + view + b"tQ"
    pickle = b"\x80\x02" + tensor(store, size=b"K\x02\x85") + b"."
    assert state_of(tmp_path / "a", torch_legacy(pickle)).tolist() == [2, 3]
    past = store.replace(integer(2) + b"t", integer(4) + b"t")
    assert "leaves" in str(survives(tmp_path / "a", torch_legacy(pickle.replace(store, past))))


def test_storages_of_old_files_are_checked(tmp_path: Path) -> None:
    pickle, whole = b"\x80\x02" + tensor() + b".", struct.pack("<Q", 4) + STORAGES["0"]
    for data in (
        torch_legacy(pickle, keys=b"\x80\x02]."),
        torch_legacy(pickle, keys=b"\x80\x02](" + text("0") + text("0") + b"e."),
        torch_legacy(pickle, keys=b"\x80\x02K\x01."),
        torch_legacy(pickle, data=whole + b"x"),
        torch_legacy(pickle, data=whole[:-1]),
        torch_legacy(pickle, data=struct.pack("<Q", 2**61) + STORAGES["0"]),
        torch_legacy(pickle, data=b""),
    ):
        assert isinstance(survives(tmp_path / "a", data), FormatError)


def test_texts_of_python_2(tmp_path: Path) -> None:
    pickle = b"\x80\x02}(U\x01aK\x01U\x02b\xffK\x02u."
    assert "bytes" in str(survives(tmp_path / "a", torch_zip(pickle)))
    state = state_of(tmp_path / "a", torch_zip(b"\x80\x02}(U\x01aK\x01U\x01bU\x01\xffu."))
    assert state == {"a": 1, "b": b"\xff"}


def test_containers(tmp_path: Path) -> None:
    pairs = b"](](" + text("a") + b"K\x01e](" + text("b") + b"K\x02ee\x85R"
    state = state_of(tmp_path / "a", torch_zip(b"\x80\x02" + OD + pairs + b"."))
    assert state == OrderedDict(a=1, b=2)
    factory = b"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R" + text("a") + b"K\x01s."
    state = state_of(tmp_path / "a", torch_zip(b"\x80\x02" + factory))
    assert (type(state), state.default_factory, state["a"]) == (defaultdict, list, 1)
    encoded = b"\x80\x02" + ENCODE + text("a\u00ff") + text("latin1") + b"\x86R."
    assert state_of(tmp_path / "a", torch_zip(encoded)) == b"a\xff"
