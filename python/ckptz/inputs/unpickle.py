"""A pickle machine that builds plain values and never runs anything.

It interprets the opcodes itself. A global is a name that is looked up in an allow list
(`pickle_globals`), and what stands there builds a value from its arguments; nothing is imported,
and no attribute is fetched because a file says so. Each opcode does a bounded amount of work: what
could copy the same bytes again and again spends from a budget that the pickle's own size gives.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

from ..errors import UnsupportedTypeError
from .base import MappedFile, brief
from .pickle_bytes import DamagedError, PickleBytes, RefusedError
from .pickle_globals import Global, check_key
from .pickle_numpy import Pending

__all__ = ["PickleMachine"]

_DICTS = (dict, OrderedDict, defaultdict, Counter)
_STOP = ord(".")


class PickleMachine:
    """Runs the pickles that lie one after another in a file, from `start` up to `end`.

    `find_global(module, name)` gives a `Global` or a plain value; `load_storage` what a persistent
    id stands for. Both raise `RefusedError` or `DamagedError`.
    """

    def __init__(
        self,
        mapped: MappedFile,
        start: int,
        end: int,
        find_global: Callable[[str, str], object],
        load_storage: Callable[[object], object],
    ) -> None:
        self._mapped = mapped
        self._find_global = find_global
        self._load_storage = load_storage
        self._bytes = PickleBytes(mapped, start, end)
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._budget = 0

    def load(self) -> Any:
        """Return the next pickle's value. Raises FormatError or UnsupportedTypeError."""
        self._stack, self._marks, self._memo = [], [], {}
        self._budget = 2 * (self._bytes.end - self._bytes.position) + 1024
        at = self._bytes.position
        try:
            while (code := self._bytes.byte()) != _STOP:
                step = _STEPS.get(code)
                if step is None:
                    raise DamagedError(
                        f"opcode {brief(chr(code))} is not one that torch.save writes"
                    )
                step(self)
                at = self._bytes.position
            return self._stop()
        except DamagedError as error:
            raise self._mapped.error(at, f"in the pickle: {error}") from None
        except RefusedError as error:
            raise UnsupportedTypeError(f"{self._mapped.path}: {error}") from None

    @property
    def position(self) -> int:
        """Where the next pickle, or what follows the last one, starts."""
        return self._bytes.position

    def spend(self, count: int) -> None:
        """Pay for `count` bytes or items that are copied."""
        self._budget -= count
        if self._budget < 0:
            raise DamagedError("it copies its own values over and over")

    def _stop(self) -> Any:
        value = self._pop()
        if self._stack or self._marks:
            raise DamagedError("values are left on its stack")
        return value

    # Stack and memo

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise DamagedError("its stack is empty")
        return self._stack.pop()

    def _top(self) -> Any:
        value = self._pop()
        self._stack.append(value)
        return value

    def _pop_some(self, count: int) -> tuple[Any, ...]:
        return tuple([self._pop() for _ in range(count)][::-1])

    def _mark(self) -> None:
        self._marks.append(len(self._stack))

    def _pop_mark(self) -> list[Any]:
        if not self._marks:
            raise DamagedError("it has no mark")
        mark = self._marks.pop()
        items = self._stack[mark:]
        del self._stack[mark:]
        return items

    def _drop(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop()

    def _put(self, index: int) -> None:
        value = self._top()
        self._memo[index] = value
        if isinstance(value, Pending):
            value.slots.append(index)

    def _memoize(self) -> None:
        self._put(len(self._memo))

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise DamagedError(f"it has no value {index} to come back to")
        self._push(self._memo[index])

    # Numbers of protocol 1; INT is how that writes booleans, too

    def _decimal(self) -> None:
        digits = self._bytes.line().removesuffix(b"L")
        if digits in (b"00", b"01"):
            return self._push(digits == b"01")
        if not digits.removeprefix(b"-").isdigit():
            raise DamagedError("a number is not decimal")
        return self._push(int(digits))

    # Containers

    def _append(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) is not list:
            raise DamagedError("it appends to what is not a list")
        target.extend(items)

    def _set_items(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) not in _DICTS:
            raise DamagedError("it sets an item of what is not a dict")
        if len(items) % 2:
            raise DamagedError("a dict's key has no value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            check_key(key)
            target[key] = value

    def _new_dict(self) -> None:
        items = self._pop_mark()
        self._push({})
        self._set_items(items)

    # Globals and what is made with them

    def _push_global(self) -> None:
        try:
            module, name = self._bytes.line().decode(), self._bytes.line().decode()
        except UnicodeDecodeError:
            raise DamagedError("a global's name is not UTF-8") from None
        self._push(self._find_global(module, name))

    def _stack_global(self) -> None:
        module, name = self._pop_some(2)
        if type(module) is not str or type(name) is not str:
            raise DamagedError("a global's name is not text")
        self._push(self._find_global(module, name))

    def _reduce(self) -> None:
        target, args = self._pop_some(2)
        if not isinstance(target, Global) or type(args) is not tuple:
            raise DamagedError("it calls what is not a function")
        self._push(target.call(args, self.spend))

    def _build(self) -> None:
        target, state = self._pop_some(2)
        if isinstance(target, Pending):
            value = target.complete(state)
            for index in target.slots:
                if self._memo.get(index) is target:
                    self._memo[index] = value
            return self._push(value)
        if type(target) is not OrderedDict:
            raise RefusedError(f"the pickle sets attributes of a {type(target).__name__}")
        if type(state) is not dict or state.keys() - {"_metadata"}:
            raise RefusedError(
                "an OrderedDict has attributes other than _metadata, which are not stored"
            )
        target.__dict__.update(state)
        return self._push(target)

    def _load_persistent(self) -> None:
        self._push(self._load_storage(self._pop()))


def _check_protocol(machine: PickleMachine) -> None:
    if (protocol := machine._bytes.byte()) > 5:
        raise DamagedError(f"protocol {protocol} is not known")


def _refuse(what: str, reads_name: bool = False) -> Callable[[PickleMachine], object]:
    def step(machine: PickleMachine) -> None:
        if reads_name:
            machine._push_global()  # whose own error names it
        raise RefusedError(what)

    return step


_Step = Callable[[PickleMachine], object]
_OBJECT = "the pickle makes an object of a class; save model.state_dict() instead"
_SET = "the pickle holds a set, which is not stored; save a list instead"
_EXTENSION = "the pickle needs an extension code, which only its writer's program knows"

_STEPS: dict[int, _Step] = {
    ord(code): step
    for code, step in {
        "\x80": _check_protocol,
        "\x95": lambda m: m._bytes.take(8),  # FRAME: only a hint for readers of streams
        # constants
        "N": lambda m: m._push(None),
        "\x88": lambda m: m._push(True),
        "\x89": lambda m: m._push(False),
        "I": PickleMachine._decimal,
        "L": PickleMachine._decimal,
        "J": lambda m: m._push(m._bytes.sint(m._bytes.take(4))),
        "K": lambda m: m._push(m._bytes.byte()),
        "M": lambda m: m._push(m._bytes.uint(2)),
        "\x8a": lambda m: m._push(m._bytes.sint(m._bytes.sized(1))),
        "\x8b": lambda m: m._push(m._bytes.sint(m._bytes.sized(4))),
        "G": lambda m: m._push(m._bytes.double()),
        "\x8c": lambda m: m._push(m._bytes.text(1)),
        "X": lambda m: m._push(m._bytes.text(4)),
        "\x8d": lambda m: m._push(m._bytes.text(8)),
        "U": lambda m: m._push(m._bytes.old_text(1)),
        "T": lambda m: m._push(m._bytes.old_text(4)),
        "C": lambda m: m._push(bytes(m._bytes.sized(1))),
        "B": lambda m: m._push(bytes(m._bytes.sized(4))),
        "\x8e": lambda m: m._push(bytes(m._bytes.sized(8))),
        "\x96": lambda m: m._push(bytes(m._bytes.sized(8))),  # a bytearray: stored as bytes
        # stack and memo
        "(": PickleMachine._mark,
        "0": PickleMachine._drop,
        "1": PickleMachine._pop_mark,
        "2": lambda m: m._push(m._top()),
        "h": lambda m: m._get(m._bytes.byte()),
        "j": lambda m: m._get(m._bytes.uint(4)),
        "q": lambda m: m._put(m._bytes.byte()),
        "r": lambda m: m._put(m._bytes.uint(4)),
        "\x94": PickleMachine._memoize,
        # containers
        ")": lambda m: m._push(()),
        "t": lambda m: m._push(tuple(m._pop_mark())),
        "\x85": lambda m: m._push(m._pop_some(1)),
        "\x86": lambda m: m._push(m._pop_some(2)),
        "\x87": lambda m: m._push(m._pop_some(3)),
        "]": lambda m: m._push([]),
        "l": lambda m: m._push(m._pop_mark()),
        "a": lambda m: m._append([m._pop()]),
        "e": lambda m: m._append(m._pop_mark()),
        "}": lambda m: m._push({}),
        "d": PickleMachine._new_dict,
        "s": lambda m: m._set_items(list(m._pop_some(2))),
        "u": lambda m: m._set_items(m._pop_mark()),
        # globals
        "c": PickleMachine._push_global,
        "\x93": PickleMachine._stack_global,
        "R": PickleMachine._reduce,
        "b": PickleMachine._build,
        "Q": PickleMachine._load_persistent,
        "\x81": _refuse(_OBJECT),  # NEWOBJ
        "\x92": _refuse(_OBJECT),  # NEWOBJ_EX
        "o": _refuse(_OBJECT),
        "i": _refuse(_OBJECT, reads_name=True),
        "\x8f": _refuse(_SET),
        "\x91": _refuse(_SET),  # FROZENSET
        "\x82": _refuse(_EXTENSION),
        "\x83": _refuse(_EXTENSION),
        "\x84": _refuse(_EXTENSION),
    }.items()
}
