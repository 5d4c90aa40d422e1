"""Made the golden files of format version 1. Kept to show how; running it again writes other files.

    python tests/data/golden/make.py FOLDER [PART...]

Golden files must decode for ever: add new folders for new features, never change old files. PART:
`first` (what format revision 0 had), `predicted`, `bounded`, `paired` (revision 2), `named`
(revision 3).
"""

from __future__ import annotations

import json
import sys
from collections import Counter, OrderedDict, defaultdict, namedtuple
from pathlib import Path
from typing import Any

import ckptz
import ml_dtypes
import msgspec
import numpy as np
from ckptz import codec, dtypes

Arrays = dict[str, np.ndarray[Any, Any]]
Point = namedtuple("Point", "x y")


def main() -> None:
    every = ["first", "predicted", "bounded", "paired", "named"]
    top, parts = Path(sys.argv[1]), sys.argv[2:] or every
    rng = np.random.default_rng(1)
    if "first" in parts:
        arrays(top / "arrays", rng)
        single(top, rng)
        store(top / "store", rng)
        objects(top / "objects", rng)
        merged(top / "merged", rng)
    if "predicted" in parts:
        for mode in ("exact", "lossy"):
            predicted(top / "predicted" / mode, mode)
    if "bounded" in parts:
        bounded(top / "bounded")
    if "paired" in parts:
        paired(top / "paired" / "arrays")
        paired_store(top / "paired" / "store")
    if "named" in parts:
        named(top / "named")


def named(folder: Path) -> None:
    """The dtype name that revision 3 added, as a tensor's and a scalar's."""
    kinds = [ml_dtypes.float8_e5m3fnu]
    rng = np.random.default_rng(3)
    with ckptz.CheckpointManager(folder) as manager:
        for step in range(3):
            state = {f"w{n}": np.frombuffer(rng.bytes(40), kind) for n, kind in enumerate(kinds)}
            state["plain"] = np.arange(3) + step
            state["scalars"] = [kind(step) for kind in kinds[: step // 2]]
            manager.save(step, state)
            told = manager.restore(step, keys="*", as_numpy=True)
            expect(folder / f"expected-{step}", told)
    (folder / "lock").unlink()


def spec(**dials: Any) -> codec.Spec:
    """A lossy spec with the given dials turned."""
    plain: dict[str, Any] = {
        "levels": 3,
        "bits": None,
        "non_negative_levels": 2,
        "domain": "auto",
        "representative": "mean",
        "refinement": 0,
        "base": "auto",
        "coding": "auto",
        "exact_fallback": False,
        "least_elements": 0,
        "links": False,
        "predict": False,
        "chunk_log2": 16,
    }
    return codec.Spec.lossy(**(plain | dials))


def drift(kind: str, n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Base and target as training makes them."""
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    base = rng.normal(0, 0.02, n)
    return base.astype(dtype), (base + rng.standard_t(3, n) * 1e-3).astype(dtype)


def arrays(folder: Path, rng: np.random.Generator) -> None:
    """One record a file, as parts for Rust and as an array frame."""
    folder.mkdir(parents=True)
    exact = codec.Spec.exact(links=False, predict=False, chunk_log2=16)
    small = codec.Spec.exact(links=False, predict=False, chunk_log2=6)
    for kind in ("float16", "bfloat16", "float32", "float64"):
        base, target = drift(kind, 1100, rng)
        for coding in ("plain", "mask", "tokens", "fixed"):
            record(folder, f"value-{coding}", target, base, spec(coding=coding))
        record(folder, "paper", target, base, spec(levels=None, bits=4, base="previous"))
        record(folder, "ordered", target, base, spec(domain="ordered", levels=2))
        record(folder, "non-negative", abs(target), abs(base), spec())
        record(folder, "refined", target, base, spec(refinement=3, chunk_log2=7))
        record(folder, "refined-ordered", target, base, spec(refinement=5, domain="ordered"))
        record(folder, "refined-non-negative", abs(target), abs(base), spec(refinement=2))
        record(folder, "zero-base", target * target.dtype.type(0.01), base, spec())
        odd = target.copy()
        odd[[3, 70, 900]] = [np.nan, -np.inf, np.inf]
        record(folder, "exceptions", odd, base, spec(chunk_log2=9))
        record(folder, "classes", target, None, exact)
        record(
            folder,
            "classes-zeros",
            np.where(np.arange(1100) % 9, 0, odd).astype(odd.dtype),
            None,
            small,
        )
        record(folder, "difference", target, base, exact)
        near = base.copy()
        near[400:420] = target[400:420]
        record(folder, "unchanged-chunks", near, base, small)
        record(folder, "same", base, base, exact)
    record(folder, "bytes", np.arange(3000, dtype=np.int64) * 7, None, exact)
    record(folder, "bytes-stored", rng.integers(0, 256, 700, np.uint8), None, exact)
    record(
        folder, "bytes-chunks", rng.integers(0, 4, 300, np.uint16), np.zeros(300, np.uint16), small
    )
    record(
        folder, "constant", np.full(500, 1.5, np.float32), np.full(500, 1.25, np.float32), spec()
    )
    record(folder, "empty", np.zeros((0, 5), np.float32), None, exact)
    record(folder, "scalar", np.array(2.5, np.float32), None, exact)


def paired(folder: Path) -> None:
    """Records in pairs, one stream a chunk and four, of odd and even lengths."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(3)
    for kind in ("float16", "bfloat16", "float32", "float64"):
        base, target = drift(kind, 1101, rng)
        record(folder, "pairs", target, base, spec(coding="pairs", levels=6))
        record(folder, "pairs-non-negative", abs(target), abs(base), spec(coding="pairs"))
    base, target = drift("float32", 4801, rng)
    record(folder, "pairs-streams", target, base, spec(coding="pairs", levels=6, chunk_log2=12))
    odd = target.copy()
    odd[[0, 4799, 4800]] = [np.nan, -np.inf, np.inf]
    record(folder, "pairs-exceptions", odd, base, spec(coding="pairs", refinement=1, levels=7))


def paired_store(folder: Path) -> None:
    """Deltas whose every lossy record is in pairs, two of them merged."""
    import pytest
    from ckptz.codec import core

    class InPairs:
        @staticmethod
        def lossy(**dials: Any) -> codec.Spec:
            return codec.Spec.lossy(**(dials | {"coding": "pairs"}))

    rng = np.random.default_rng(4)
    w, v = rng.normal(0, 0.02, 1501).astype("f4"), (rng.normal(0, 1e-3, 800) ** 2).astype("f4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "Spec", InPairs)
        core.spec_of.cache_clear()
        with ckptz.CheckpointManager(folder) as manager:
            for step in range(4):
                manager.save(step, {"w": w, "v": v, "step": step})
                w = w + np.float32(1e-4) * rng.standard_normal(w.shape).astype("f4")
                v = (0.9 * v + 0.1 * rng.normal(0, 1e-3, v.shape) ** 2).astype("f4")
            manager.merge([1, 2])
            for step in manager.all_steps():
                flat = manager.restore(step, keys="*", as_numpy=True, residual=False)
                expect(folder / f"expected-{step}", flat)
            expect(folder / "expected-exact", manager.restore(keys="*", as_numpy=True))
    core.spec_of.cache_clear()
    (folder / "lock").unlink()


def record(folder: Path, name: str, target: Any, base: Any, how: codec.Spec) -> None:
    """Write one record as NAME.DTYPE.frame, and as NAME.DTYPE.parts.

    Parts: four u32 lengths, then header, payload, base and expected content.
    """
    target = np.ascontiguousarray(target).reshape(np.shape(target))
    dtype = target.dtype.name
    layout = dtypes.layout(dtype)
    assert layout is not None
    element = codec.element_number(layout.element_type, layout.itemsize)
    made = None if base is None else np.array(base)
    bases = [None if made is None else codec.as_bytes(made)]
    encoder = codec.SnapshotEncoder([codec.as_bytes(target)], bases, [element], [how], False, 1)
    room, length = np.empty(1 << 20, np.uint8), 0
    while written := encoder.fill(room[length:], codec.Crc()):
        length += written
    header = encoder.finish()[0]
    payload = room[:length].tobytes()
    expected = (target if made is None else made).tobytes()
    meta = msgspec.msgpack.encode([dtype, list(target.shape), header])
    frame = b"CKA\x01" + payload + meta + len(meta).to_bytes(4, "little")
    crc = codec.Crc()
    crc.update(frame)
    stem = str(folder / f"{name}.{dtype}")
    Path(f"{stem}.frame").write_bytes(frame + crc.value.to_bytes(8, "little"))
    parts = [header, payload, b"" if base is None else np.asarray(base).tobytes(), expected]
    lengths = b"".join(len(part).to_bytes(4, "little") for part in parts)
    Path(f"{stem}.parts").write_bytes(lengths + b"".join(parts))
    decoded = codec.decode(
        Path(f"{stem}.frame").read_bytes(), None if base is None else np.array(base)
    )
    assert decoded.tobytes() == expected, name


def single(top: Path, rng: np.random.Generator) -> None:
    """A full snapshot with every kind of node, value and dtype."""
    ordered: Any = OrderedDict(weight=rng.normal(size=(3, 4)).astype("f4"), bias=np.zeros(3, "f4"))
    ordered._metadata = OrderedDict({"": {"version": 1}})
    tied = rng.normal(size=5)
    dtypes = {
        name: np.frombuffer(rng.bytes(64), name).copy()
        for name in [
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
    }
    more = {
        name: np.frombuffer(rng.bytes(16), getattr(ml_dtypes, name)).copy()
        for name in "bfloat16 float8_e4m3fn float8_e5m2 float8_e8m0fnu".split()  # noqa: SIM905
    }
    state = {
        "model": ordered,
        "dtypes": {
            **dtypes,
            **more,
            "bool": np.array([True, False]),
            "text": np.array(["a", "\u00e9\U0001f600"]),
        },
        "shapes": [
            np.zeros((0, 5), "f4"),
            np.zeros((0,), "i4"),
            np.array(3.5),
            np.zeros((2, 0, 3), "u1"),
        ],
        "plain": (
            None,
            True,
            False,
            0,
            -1,
            2**63,
            -(2**70),
            1.5,
            -0.0,
            float("inf"),
            "x",
            "\ud800",
            b"\x00",
            1 + 2j,
        ),
        "scalars": [np.float32(2.5), np.int8(-3), np.bool_(True)],
        "containers": [
            {},
            [],
            (),
            OrderedDict(),
            Counter(a=2),
            defaultdict(list, k=[1]),
            Point(1, "y"),
        ],
        "keys": {
            0: "int",
            "0": "text",
            "": 1,
            "/": 2,
            "~": 3,
            "a.b": 4,
            "\n\x00": 5,
            "__metadata__": 6,
        },
        "tied": [tied, tied],
    }
    ckptz.save_file(state, top / "one.ckptz")
    flat = ckptz.load_file(top / "one.ckptz", keys="*", as_numpy=True)
    expect(top / "one", flat)


def store(folder: Path, rng: np.random.Generator) -> None:
    """A chain with every kind of change, two full snapshots, and a residual."""
    w, d = rng.normal(0, 0.02, (40, 50)).astype("f4"), rng.normal(size=(16, 12))
    v, h = (rng.normal(0, 1e-3, 700) ** 2).astype("f4"), rng.normal(size=300).astype("f2")
    with ckptz.CheckpointManager(folder, full_every=4) as manager:
        for step in range(0, 70, 10):
            state = {
                "w": w,
                "half": w.astype(ml_dtypes.bfloat16),
                "twin": w.copy(),
                "v": v,
                "d": d,
                "h": h,
                "fixed": np.arange(40),
                "count": np.array(step),
                "lr": 0.1 / (step + 1),
                "name": "run",
                "tied": w if step < 40 else None,
            }
            if step in (20, 30):
                state["extra"] = rng.normal(size=20).astype("f4")
            manager.save(step, state)
            if step == 50:
                manager.restore(40, rewind=True)
            w = w + rng.standard_t(3, w.shape).astype("f4") * np.float32(1e-4)
            d, h = d + rng.normal(0, 1e-3, d.shape), (h + rng.normal(0, 1e-2, h.shape)).astype("f2")
            v = (0.99 * v + 0.01 * rng.normal(0, 1e-3, v.shape) ** 2).astype("f4")
            if step == 20:
                w[3, 4] = np.nan
        for step in manager.all_steps():
            flat = manager.restore(step, keys="*", as_numpy=True, residual=False)
            expect(folder / f"expected-{step}", flat)
        expect(folder / "expected-exact", manager.restore(keys="*", as_numpy=True))
    (folder / "lock").unlink()


def objects(folder: Path, rng: np.random.Generator) -> None:
    """What an object store holds: parts and commits, a line left behind, and a residual."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "python"))
    import fake_objects
    import pytest

    folder.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        bucket = fake_objects.install(patch).bucket()
        manager = ckptz.CheckpointManager("s3://bucket/run")
        w = rng.normal(0, 0.02, 60).astype("f4")
        for step in (0, 10, 20, 30):
            manager.save(step, {"w": w, "half": w.astype("f2"), "lr": 0.1 / (step + 1)})
            w = w + rng.standard_t(3, w.shape).astype("f4") * np.float32(1e-4)
        manager.restore(10, rewind=True)
        manager.save(25, {"w": w, "half": w.astype("f2"), "lr": 0.5})
        for step in manager.all_steps():
            flat = manager.restore(step, keys="*", as_numpy=True, residual=False)
            expect(folder / f"expected-{step}", flat)
        expect(folder / "expected-exact", manager.restore(keys="*", as_numpy=True))
        for name, data in bucket.objects.items():
            (folder / name.removeprefix("run/")).write_bytes(data)


def merged(folder: Path, rng: np.random.Generator) -> None:
    """Two merged files, one with a dropped step and records left out, a mark, a pin, `extra`."""
    policy = ckptz.Policy([ckptz.Rule("seldom", every=3), ckptz.Rule("*")])
    with ckptz.CheckpointManager(folder, policy, full_every=6) as manager:
        for step in range(9):
            state = {
                "w": rng.normal(0, 0.02, (40, 50)).astype("f4"),
                "new": rng.integers(0, 9, 400),
                "seldom": rng.normal(size=70),
                "step": step,
            }
            if step == 4:
                state["extra"] = rng.normal(size=30).astype("f8")
            manager.save(step, state, metrics={"loss": 1 / (step + 1)})
            if step == 2:
                manager.pin()
        manager.delete(1)
        manager.delete(3)
        manager.merge([0, 2])
        manager.merge([4, 5])
        manager.merge([4, 6])
        manager.restore(7, rewind=True)
        manager.save(9, state)
        manager.delete(7)
        for step in manager.all_steps():
            flat = manager.restore(step, keys="*", as_numpy=True)
            expect(folder / f"expected-{step}", flat)
    (folder / "lock").unlink()


def predicted(folder: Path, mode: str) -> None:
    """Runs with Adam and with momentum, a snapshot an iteration: every formula, in every type."""
    rng = np.random.default_rng(2)
    kinds = ("float16", "bfloat16", "float32", "float64")
    types = {kind: np.dtype(getattr(ml_dtypes, kind, kind)).type for kind in kinds}
    weights = {k: rng.normal(0, 0.05, (16, 12)).astype(one) for k, one in types.items()}
    still = {k: v.copy() for k, v in weights.items()}  # trained by momentum
    first = {k: rng.normal(0, 1e-2, (16, 12)).astype(one) for k, one in types.items()}
    second = {k: (v.astype("f4") ** 2 + 1e-4).astype(types[k]) for k, v in first.items()}
    with ckptz.CheckpointManager(folder, ckptz.Rule(mode=mode), exact="none") as manager:  # type: ignore[arg-type]
        for step in range(4):
            state = {"w": weights, "u": still, "m": first, "v": second, "step": step}
            manager.save(step, state)
            weights, still, first, second = (dict(part) for part in (weights, still, first, second))
            for k, one in types.items():
                g = rng.normal(0, 1e-2, (16, 12)).astype(one)
                first[k] = (one(0.9) * first[k] + one(0.1) * g).astype(one)
                second[k] = (one(0.99) * second[k] + one(0.01) * (g * g)).astype(one)
                direction = first[k] / (np.sqrt(second[k]) + one(1e-8))
                weights[k] = (weights[k] - one(1e-2) * direction).astype(one)
                still[k] = (still[k] - one(0.5) * first[k]).astype(one)
        for step in manager.all_steps():
            flat = manager.restore(step, keys="*", as_numpy=True)
            expect(folder / f"expected-{step}", flat)
        formulas = [t.base for t in manager.stats(3).tensors.values()]
        assert formulas.count("predicted") >= 6, formulas
    (folder / "lock").unlink()


def bounded(folder: Path) -> None:
    """Bounds, in every type and domain: refinement bits, exceptions, and numbers in the policy."""
    rng = np.random.default_rng(3)
    rules = [
        ckptz.Rule("absolute/*", max_error=1e-4),
        ckptz.Rule("relative/*", max_rel_error=5e-3),
        ckptz.Rule("squares/*", max_rel_error=1e-2, max_error=1),
    ]
    kinds = ("float16", "bfloat16", "float32", "float64")
    types = {kind: np.dtype(getattr(ml_dtypes, kind, kind)) for kind in kinds}
    values = {kind: rng.normal(0, 0.05, 300) * 10 ** rng.normal(0, 0.7, 300) for kind in kinds}
    with ckptz.CheckpointManager(folder, rules, exact="none") as manager:
        for step in range(3):
            narrow = {kind: values[kind].astype(types[kind]) for kind in kinds}
            narrow["float32"][7] = 3e30
            copies = {kind: array.copy() for kind, array in narrow.items()}
            squares = {kind: (values[kind] ** 2).astype(types[kind]) for kind in kinds}
            manager.save(step, {"absolute": narrow, "relative": copies, "squares": squares})
            for value in values.values():
                value *= 1 + rng.standard_t(3, 300) * 0.03
        for step in manager.all_steps():
            flat = manager.restore(step, keys="*", as_numpy=True)
            expect(folder / f"expected-{step}", flat)
        kinds_of = {t.kind for t in manager.stats(2).tensors.values()}
        assert kinds_of >= {"value", "ordered", "ordered non-negative"}, kinds_of
    (folder / "lock").unlink()


def expect(stem: Path, flat: dict[str, Any]) -> None:
    """Write what must come out: tensors as bytes in hex by dtype and shape, values by repr."""
    told = {}
    for path, value in flat.items():
        if isinstance(value, np.ndarray):
            told[path] = [value.dtype.name, list(value.shape), value.tobytes().hex()]
        else:
            told[path] = repr(value)
    Path(f"{stem}.json").write_text(json.dumps(told, indent=0) + "\n")


main()
