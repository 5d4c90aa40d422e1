"""Policies: which tensors are coded lossily, and how."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from .errors import FormatError, PolicyError
from .keypath import glob

__all__ = ["Policy", "Rule", "is_batch_statistic"]

Mode = Literal["auto", "lossy", "exact", "paper"]

DEFAULT_LEVELS = 3
DEFAULT_BITS = 3
_MOST_DIGITS = 9  # Python refuses to read a number of very many

_BATCH_STATISTICS = re.compile(r"running_mean|running_var|batch_stats")
_CHOICES = {
    "mode": ("auto", "lossy", "exact", "paper"),
    "domain": ("auto", "value", "ordered"),
    "representative": ("mean", "midrange"),
    "coding": ("auto", "plain"),
    "base": ("auto", "unpredicted"),
}


def is_batch_statistic(path: str) -> bool:
    """Whether a key path is named like batch statistics, which lossy coding harms at once."""
    return _BATCH_STATISTICS.search(path) is not None


class Rule(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How the tensors whose key path matches `pattern` are coded.

    mode: "auto" is what the default policy does; "lossy" is the same without a look at names;
    "exact" bit for bit; "paper" the rule of the LC-Checkpoint paper with `bits`. Whatever the
    mode, what is not float16, bfloat16, float32 or float64 is exact, and so is (but for "paper")
    a tensor without dimensions, with fewer than 16 entries, or no smaller when coded lossily. A
    tensor with several key paths is exact if the rules make it so at any; else the first counts.
    """

    pattern: str = "*"
    """Matched against the whole key path as in `fnmatch.fnmatchcase`; `*` matches `/` too."""
    mode: Mode = "auto"
    levels: int | None = None
    """How many of the largest exponents are kept, 1 to 7 (None: 3)."""
    domain: Literal["auto", "value", "ordered"] = "auto"
    """Deltas of values or of ordered bits; "auto": ordered bits where no sign bit is set.

    Of more than 2^18 entries a sample is looked at, and the few signs it lacks are kept exactly."""
    representative: Literal["mean", "midrange"] = "mean"
    """What stands for a bucket."""
    refinement: int = 0
    """Raw bits added to each kept entry, 0 to 23."""
    coding: Literal["auto", "plain"] = "auto"
    """How symbols are written: the cheapest way, or a Huffman code alone as in the paper."""
    bits: int | None = None
    """Mode "paper" only: 2^bits - 1 buckets are kept, 1 to 4 (None: 3)."""
    every: int = 1
    """Saved in every so many snapshots alone, and in full ones; in others it is left as it was.

    The newest snapshot's residual has it nevertheless. Bounds say nothing of a tensor while it is
    left so.
    """
    base: Literal["auto", "unpredicted"] = "auto"
    """What deltas are taken against, where that pays: the tensor as it was, zero, or (not for mode
    "paper") what other tensors of the state say of it; "unpredicted": not the last."""
    max_error: float | None = None
    """In every snapshot and for every finite entry u, its reconstruction r (what a restore without
    the residual gives) has |r - u| <= max_error, in the units of the tensor; finite, above 0.

    This is checked for every entry when it is coded. More levels and refinement bits than the rule
    has are taken where that is cheaper; what they do not reach is stored exactly.
    """
    max_rel_error: float | None = None
    """Likewise |r - u| <= max_rel_error * |u|; where both bounds are given both hold."""

    def __post_init__(self) -> None:
        """Raise `PolicyError` for a value out of range."""
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                known = ", ".join(map(repr, choices))
                raise PolicyError(f"{name}={getattr(self, name)!r} is not one of {known}")
        if not isinstance(self.pattern, str):
            raise PolicyError(f"pattern={self.pattern!r} is not text")
        if not _is_unicode(self.pattern):
            raise PolicyError(
                f"pattern={self.pattern!r} is not valid Unicode, and so cannot be stored; "
                "? matches any character"
            )
        _check_range("levels", self.levels, 1, 7)
        _check_range("refinement", self.refinement, 0, 23)
        _check_range("bits", self.bits, 1, 4)
        if type(self.every) is not int or self.every < 1:
            raise PolicyError(f"every={self.every!r} is not an integer from 1 up")
        if (self.mode == "paper") < (self.bits is not None):
            raise PolicyError(f"bits={self.bits} is for mode='paper'; use levels")
        if self.levels is not None and self.mode in ("paper", "exact"):
            raise PolicyError(f"levels={self.levels} is not for mode={self.mode!r}")
        for name in _BOUNDS:
            self._check_bound(name)

    def _check_bound(self, name: str) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, numbers.Real):  # NumPy's scalars are
            raise PolicyError(f"{name}={value!r} is not a number")
        try:
            bound = float(value)
        except OverflowError:
            bound = math.inf
        if not 0 < bound < math.inf:
            raise PolicyError(f"{name}={value!r:.80} is not finite and above 0")
        if self.mode == "exact":
            raise PolicyError(f"{name}={value!r} is not for mode='exact', which has no error")
        if self.mode == "paper":
            raise PolicyError(f"{name}={value!r} is not for mode='paper', which bounds no error")
        msgspec.structs.force_setattr(self, name, bound)

    @property
    def is_bounded(self) -> bool:
        """Whether it bounds the error of every entry."""
        return any(getattr(self, name) is not None for name in _BOUNDS)

    def within(self, other: Rule) -> Rule:
        """Return this rule with the bounds of another too, for a tensor that both match."""
        if not other.is_bounded or self.mode == "exact":
            return self
        if self.mode == "paper":  # it cannot keep to a bound
            return Rule(self.pattern, mode="exact", every=self.every)
        tighter: dict[str, float] = {}
        for name in _BOUNDS:
            both = [bound for rule in (self, other) if (bound := getattr(rule, name)) is not None]
            if both:
                tighter[name] = min(both)
        return msgspec.structs.replace(self, **tighter)

    @property
    def non_negative_levels(self) -> int:
        """Levels on ordered bits where "auto" takes them: they span wide octaves, so one fewer."""
        levels = self.levels or DEFAULT_LEVELS
        return min(levels, max(2, levels - 1))


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


_BOUNDS = ("max_error", "max_rel_error")

# Fields that the first readers know: they refuse a rule with more.
_FIRST_FIELDS = 8


def _without_defaults(fields: list[Any]) -> list[Any]:
    """Leave out the last fields, as far as old readers do not know them and they say nothing."""
    known = msgspec.structs.fields(Rule)
    while len(fields) > _FIRST_FIELDS and fields[-1] == known[len(fields) - 1].default:
        fields = fields[:-1]
    return fields


def _check_range(name: str, value: object, low: int, high: int) -> None:
    if value is None and name != "refinement":
        return
    if type(value) is not int or not low <= value <= high:
        raise PolicyError(f"{name}={value!r} is not an integer from {low} to {high}")


class Policy:
    """An ordered list of rules; the first that matches a tensor counts, none: it is exact."""

    __slots__ = ("_matchers", "rules")

    def __init__(self, rules: Iterable[Rule]) -> None:
        """Make a policy of `rules`. Raises `PolicyError` if there are none or one is no rule."""
        if not isinstance(rules, Iterable):
            raise PolicyError(f"{rules!r:.80} is no policy: give one, its rules, or its name")
        self.rules: tuple[Rule, ...] = tuple(rules)
        for rule in self.rules:
            if not isinstance(rule, Rule):
                raise PolicyError(f"{rule!r:.80} is not a ckptz.Rule, as each rule of a policy is")
        if not self.rules:
            raise PolicyError("a policy needs at least one rule")
        self._matchers = [glob(rule.pattern) for rule in self.rules]

    @classmethod
    def lossy(cls, levels: int = DEFAULT_LEVELS) -> Policy:
        """Lossy where that does no harm, by content and name: the default."""
        return cls([Rule("*", mode="auto", levels=levels)])

    @classmethod
    def exact(cls) -> Policy:
        """Everything bit for bit."""
        return cls([Rule("*", mode="exact")])

    @classmethod
    def paper(
        cls,
        bits: int = DEFAULT_BITS,
        representative: Literal["midrange", "mean"] = "midrange",
        coding: Literal["plain", "auto"] = "plain",
    ) -> Policy:
        """Return the rule of the LC-Checkpoint paper for every float tensor of any size.

        `representative="mean"` and `coding="auto"` are for comparison.
        """
        rule = Rule("*", mode="paper", bits=bits, representative=representative, coding=coding)
        return cls([rule])

    @classmethod
    def of(cls, policy: Policy | str | Rule | Sequence[Rule]) -> Policy:
        """Return the policy that a user means: a policy, rules, or the strings.

        The strings are "lossy", "exact" and "paper", and with a number "lossy:2", "paper:3".
        """
        if isinstance(policy, Policy):
            return policy
        if isinstance(policy, Rule):
            return cls([policy])
        if not isinstance(policy, str):
            return cls(policy)
        name, colon, number = policy.partition(":")
        digits = number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS
        if name == "exact" and not colon:
            return cls.exact()
        if name in ("lossy", "paper") and (digits or not colon):
            make = cls.lossy if name == "lossy" else cls.paper
            return make(int(number)) if colon else make()
        known = "'lossy', 'lossy:LEVELS', 'exact', 'paper', 'paper:BITS'"
        raise PolicyError(f"unknown policy {policy!r:.80}; known are {known}")

    def match(self, path: str) -> int | None:
        """Return the number of the first rule that matches a key path."""
        for number, matches in enumerate(self._matchers):
            if matches(path):
                return number
        return None

    def to_builtins(self) -> list[Any]:
        """Return the policy as plain lists, for a file."""
        return [_without_defaults(msgspec.to_builtins(rule)) for rule in self.rules]

    @classmethod
    def from_builtins(cls, rules: object) -> Policy:
        """Return the policy from `to_builtins`. Raises `FormatError` if it is none."""
        try:
            return cls(msgspec.convert(rules, list[Rule]))
        except (msgspec.ValidationError, PolicyError) as error:
            raise FormatError(f"policy: {error}") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self.rules == other.rules

    def __hash__(self) -> int:
        return hash(self.rules)

    def __repr__(self) -> str:
        return f"Policy([{', '.join(map(repr, self.rules))}])"
