"""The peers that ckptz is measured beside, each in one thread, as their documentation says.

Into the caller's buffers where their API has them. A peer that cannot be imported is left out;
`missing` names it.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from arrays import Array, DataSet
from coders import Coded, Coder

# Read when the packages are imported.
os.environ["FIREWORKS_DELTA_DECOMPRESS_THREADS"] = "0"
os.environ["MOONCLIP_THREADS"] = "1"

PACKAGES = {
    "zstandard": "zstd",
    "lz4.block": "lz4",
    "blosc2": "blosc2",
    "pcodec": "pcodec",
    "zipnn": "zipnn",
    "z4ai": "z4ai",
    "fireworks_delta_compression": "fireworks-delta-compression",
    "moonclip": "moonclip",
}


def load_peer(package: str) -> Any | None:
    """Import a peer, if it is installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(package)
    except Exception:  # a package for another version of what it needs may raise anything
        return None


def missing() -> list[str]:
    return [name for package, name in PACKAGES.items() if load_peer(package) is None]


class Alone(Coder):
    """A peer that codes one array at a time, without a base."""

    def __init__(
        self,
        name: str,
        data: DataSet,
        encode: Callable[[Array], Any],
        decode: Callable[[Any, Array], Any],
    ) -> None:
        super().__init__(name, data)
        self.of = "deltas" if data.deltas else "targets"
        self.expected = data.alone
        self._encode, self._decode = encode, decode
        self._out = [np.empty_like(array) for array in self.expected]

    def encode(self) -> Coded:
        return [self._encode(array) for array in self.expected]

    def decode(self, coded: Coded) -> list[Any]:
        found = zip(coded, self._out, strict=True)
        return [self._decode(piece, out) for piece, out in found]


class Zipnn(Coder):
    """zipnn, which spoils what it is given to code."""

    def __init__(self, data: DataSet, zipnn: Any) -> None:
        super().__init__("zipnn", data)
        self.of = "deltas" if data.deltas else "targets"
        self.expected = data.alone
        names = {"f": "float32", "V": "bfloat16"}  # NumPy's kinds; bf16 is a void to it
        kind = names[self.expected[0].dtype.kind]
        self._znn = zipnn.ZipNN(input_format="byte", bytearray_dtype=kind, threads=1)
        self._given = [array.copy() for array in self.expected]

    def before_encode(self) -> None:
        for given, array in zip(self._given, self.expected, strict=True):
            np.copyto(given, array)

    def encode(self) -> Coded:
        return [self._znn.compress(_bytes(given)) for given in self._given]

    def decode(self, coded: Coded) -> list[Any]:
        return [self._znn.decompress(piece) for piece in coded]


class AgainstBase(Coder):
    """A peer that codes an exact delta against the array before."""

    def __init__(
        self,
        name: str,
        data: DataSet,
        encode: Callable[[Any, Any], Any],
        decode: Callable[[Any, Any], Any],
        view: Callable[[Array], Any],
    ) -> None:
        super().__init__(name, data)
        self._targets = [view(array) for array in data.targets]
        self._bases = [view(array) for array in data.bases]
        self._encode, self._decode = encode, decode

    def encode(self) -> Coded:
        return [self._encode(t, b) for t, b in zip(self._targets, self._bases, strict=True)]

    def decode(self, coded: Coded) -> list[Any]:
        return [self._decode(c, b) for c, b in zip(coded, self._bases, strict=True)]


class Fireworks(AgainstBase):
    """fireworks-delta-compression, whose coded form is a torch tensor and a checksum."""

    def stored(self, coded: Coded) -> int:
        return sum(tensor.nbytes + 4 for tensor, _ in coded)


def _bytes(array: Array) -> memoryview:
    return memoryview(array.view(np.uint8))


def _integers(array: Array) -> Array:
    return array.view(f"u{array.itemsize}")


def peer_coders(data: DataSet) -> Iterator[Coder]:
    """Yield the peers that are installed and code such a set."""
    yield from _general(data)
    zipnn = load_peer("zipnn")
    if zipnn is not None:
        yield Zipnn(data, zipnn)
    if data.targets[0].dtype.itemsize == 2:
        yield from _delta_coders(data)


def _general(data: DataSet) -> Iterator[Coder]:
    zstd = load_peer("zstandard")
    if zstd is not None:
        for level in (1, 3):
            press, unpress = zstd.ZstdCompressor(level=level).compress, zstd.ZstdDecompressor()
            yield Alone(
                f"zstd -{level}",
                data,
                lambda a, press=press: press(_bytes(a)),
                lambda c, _, unpress=unpress: unpress.decompress(c),
            )
    lz4 = load_peer("lz4.block")
    if lz4 is not None:
        yield Alone("lz4", data, lambda a: lz4.compress(_bytes(a)), lambda c, _: lz4.decompress(c))
    blosc2 = load_peer("blosc2")
    if blosc2 is not None:
        blosc2.set_nthreads(1)
        how = {"codec": blosc2.Codec.ZSTD, "clevel": 1, "filters": [blosc2.Filter.SHUFFLE]}

        def press_blosc(array: Array) -> Any:
            return blosc2.compress2(_integers(array), typesize=array.itemsize, nthreads=1, **how)

        def unpress_blosc(coded: Any, out: Array) -> Array:
            blosc2.decompress2(coded, dst=_integers(out), nthreads=1)
            return out

        yield Alone("blosc2 (shuffle, zstd -1)", data, press_blosc, unpress_blosc)
    pcodec = load_peer("pcodec")
    if pcodec is not None:
        yield _pcodec(data, pcodec)


def _pcodec(data: DataSet, pcodec: Any) -> Coder:
    config = pcodec.ChunkConfig(compression_level=8)

    def known(array: Array) -> Array:
        return _integers(array) if array.dtype.kind == "V" else array  # it has no bf16

    def unpress(coded: Any, out: Array) -> Array:
        pcodec.standalone.simple_decompress_into(coded, known(out))
        return out

    return Alone(
        "pcodec -8", data, lambda a: pcodec.standalone.simple_compress(known(a), config), unpress
    )


def _delta_coders(data: DataSet) -> Iterator[Coder]:
    z4ai = load_peer("z4ai")
    if z4ai is not None:
        yield AgainstBase(
            "z4ai delta",
            data,
            lambda t, b: z4ai.delta.compress(t, b, dtype="bf16", threads=1),
            z4ai.delta.decompress,
            _integers,
        )
    fireworks, torch = load_peer("fireworks_delta_compression"), load_peer("torch")
    if fireworks is not None and torch is not None:
        torch.set_num_threads(1)

        def undo(coded: Any, base: Any) -> Array:
            found = fireworks.delta_decompress(
                src=base, compressed_diff=coded[0], checksum=coded[1], compression_format="arc_v3"
            )
            plain: Array = found.view(torch.int16).numpy()
            return plain

        yield Fireworks(
            "fireworks arc_v3",
            data,
            lambda t, b: fireworks.delta_compress(src=b, dst=t, compression_format="arc_v3"),
            undo,
            lambda a: torch.from_numpy(a.view(np.int16)).view(torch.bfloat16),
        )
