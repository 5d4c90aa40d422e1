"""The allow list of a pickle's globals: plain containers and NumPy's arrays; torch's are apart.

A global is never the object of that name, only what builds the like of its result.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from ..keypath import key_fits
from .base import brief
from .dtypes import ML_DTYPES
from .pickle_bytes import DamagedError, RefusedError, is_text
from .pickle_numpy import PendingArray, PickledDtype, rebuild_buffer, rebuild_scalar

__all__ = ["PLAIN_GLOBALS", "Global", "Spend", "check_key", "find_in"]

Spend = Callable[[int], None]
_Build = Callable[[tuple[Any, ...], Spend], object]

# Python 2's modules, and those that have moved.
_MODULES = {
    "__builtin__": "builtins",
    "numpy.core.multiarray": "numpy._core.multiarray",
    "numpy.core.numeric": "numpy._core.numeric",
    "torch.tensor": "torch._tensor",
}

_HINTS = {
    "builtins.frozenset": "is a set",
    "builtins.getattr": "could reach anything",
    "torch._utils._rebuild_qtensor": "is a quantized tensor",
    "torch._utils._rebuild_sparse_tensor": "is a sparse tensor",
    "torch._utils._rebuild_nested_tensor": "is a nested tensor",
    "torch._utils._rebuild_wrapper_subclass": "is a tensor subclass",
    "torch._utils._rebuild_meta_tensor_no_storage": "is a tensor without data (meta)",
}


class Global:
    """An allowed global: its name, and what a call of it builds if it may be called.

    `factory`: the built-in type that it names, of use to a defaultdict only.
    """

    def __init__(
        self, name: str, build: _Build | None = None, factory: Callable[[], object] | None = None
    ) -> None:
        self.name = name
        self.factory = factory
        self._build = build

    def call(self, args: tuple[Any, ...], spend: Spend) -> object:
        """Build what `name(*args)` would be. Raises DamagedError or RefusedError."""
        if self._build is None:
            raise RefusedError(f"the pickle calls `{self.name}`, whose result is not stored")
        return self._build(args, spend)


def find_in(allowed: Mapping[str, object], module: str, name: str) -> object:
    """Return what stands in the allow list. Raises RefusedError with the name if nothing does."""
    full = f"{_MODULES.get(module, module)}.{name}"
    if full in allowed:
        return allowed[full]
    shown = brief(full)[1:-1]
    why = _HINTS.get(full, "is not a tensor or plain value")
    raise RefusedError(f"the pickle needs `{shown}`, which {why}; save model.state_dict() instead")


def check_key(key: object) -> None:
    """Refuse a key that is not text or a 64-bit integer.

    Not for the state's sake alone: hashing a deep tuple recurses, and floats and long integers can
    be chosen so that all their hashes are equal.
    """
    if type(key) is str or (type(key) is int and key_fits(key)):
        return
    kind = type(key).__name__
    raise RefusedError(f"a dict has a key (type {kind}) that is not text or a 64-bit integer")


def _ordered_dict(args: tuple[Any, ...], spend: Spend) -> OrderedDict[Any, Any]:
    made: OrderedDict[Any, Any] = OrderedDict()
    if args:  # Python 2 gives a list of [key, value]
        if len(args) != 1 or type(args[0]) is not list:
            raise DamagedError("an OrderedDict is not made from a list of pairs")
        spend(len(args[0]))
        for pair in args[0]:
            if type(pair) not in (list, tuple) or len(pair) != 2:
                raise DamagedError("an OrderedDict is not made from a list of pairs")
            check_key(pair[0])
            made[pair[0]] = pair[1]
    return made


def _counter(args: tuple[Any, ...], spend: Spend) -> Counter[Any]:
    made: Counter[Any] = Counter()
    if args:
        if len(args) != 1 or type(args[0]) is not dict:
            raise DamagedError("a Counter is not made from a dict")
        spend(len(args[0]))
        made.update(args[0])
    return made


def _default_dict(args: tuple[Any, ...], spend: Spend) -> defaultdict[Any, Any]:
    if not args or (len(args) == 1 and args[0] is None):
        return defaultdict()
    if len(args) == 1 and isinstance(args[0], Global) and args[0].factory is not None:
        return defaultdict(args[0].factory)
    raise RefusedError("the pickle holds a defaultdict whose factory is not a built-in type")


def _encode(args: tuple[Any, ...], spend: Spend) -> bytes:
    """Make bytes from what protocol 2 writes: a text of their values."""
    if len(args) == 2 and type(args[0]) is str and is_text(args[1], "latin1", "latin-1"):
        spend(len(args[0]))
        try:
            return args[0].encode("latin-1")
        except UnicodeEncodeError:
            pass
    raise DamagedError("bytes are not written as latin-1 text")


def _bytes(args: tuple[Any, ...], spend: Spend) -> bytes:
    if not args:
        return b""
    if len(args) == 1 and type(args[0]) is bytes:
        return args[0]
    return _encode(args, spend)


def _complex(args: tuple[Any, ...], spend: Spend) -> complex:
    if len(args) == 2 and type(args[0]) is float and type(args[1]) is float:
        return complex(*args)
    raise DamagedError("a complex number is not made from two floats")


def _reconstruct(args: tuple[Any, ...], spend: Spend) -> PendingArray:
    if len(args) == 3 and isinstance(args[0], Global) and args[0].name == "numpy.ndarray":
        return PendingArray(spend)
    raise RefusedError("the pickle holds a subclass of NumPy's array, which is not stored")


_BUILDERS: dict[str, _Build] = {
    "collections.OrderedDict": _ordered_dict,
    "collections.Counter": _counter,
    "collections.defaultdict": _default_dict,
    "_codecs.encode": _encode,
    "builtins.bytes": _bytes,
    "builtins.bytearray": _bytes,  # stored as bytes
    "builtins.complex": _complex,
    "numpy.dtype": lambda args, spend: PickledDtype(args),
    "numpy._core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray.scalar": rebuild_scalar,
    "numpy._core.numeric._frombuffer": rebuild_buffer,
}
_FACTORIES: dict[str, Callable[[], object]] = {
    f"builtins.{kind.__name__}": kind
    for kind in (dict, list, tuple, set, int, float, bool, str, bytes, complex)
}
PLAIN_GLOBALS: dict[str, object] = {
    name: Global(name, _BUILDERS.get(name), _FACTORIES.get(name))
    for name in ("numpy.ndarray", *_BUILDERS, *_FACTORIES)
}
# A dtype of ml_dtypes only stands inside numpy.dtype(..), which takes text.
PLAIN_GLOBALS.update({f"ml_dtypes.{name}": name for name in ML_DTYPES})
