"""Key paths: where a leaf is in a state, as a tuple of keys and as text.

The text is a JSON Pointer without its first slash: `optimizer/state/0/exp_avg`. In a key `~0`
stands for `~` and `~1` for `/`; a text key that reads as an integer has `~2` before it; `~3` is
the path of a state that is one leaf itself; `~4` is the attribute `_metadata` of an ordered dict
(in a tuple: None). Text and tuple determine each other.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable

__all__ = ["Key", "Keys", "from_text", "glob", "key_fits", "key_size", "segment", "to_text"]

Key = str | int | None
Keys = tuple[Key, ...]

MAX_TEXT = 2**20

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_ESCAPE = re.compile(r"~(?![01])")
_ROOT = "~3"
_ATTRIBUTE = "~4"


def segment(key: Key) -> str:
    """Text of one key."""
    if key is None:
        return _ATTRIBUTE
    if isinstance(key, int):
        return str(key)
    if "~" in key or "/" in key:
        return key.replace("~", "~0").replace("/", "~1")
    return "~2" + key if _INTEGER.fullmatch(key) else key


def to_text(keys: Iterable[Key]) -> str:
    """Text of a key path."""
    segments = [segment(key) for key in keys]
    return "/".join(segments) if segments else _ROOT


def from_text(text: str) -> Keys:
    """Inverse of `to_text`. Raises `ValueError` for a text that is no key path."""
    if text == _ROOT:
        return ()
    return tuple(_key(part, text) for part in text.split("/"))


def _key(part: str, text: str) -> Key:
    if part == _ATTRIBUTE:
        return None
    if _INTEGER.fullmatch(part) and part != "-0":
        return int(part)
    if part.startswith("~2") and _INTEGER.fullmatch(part, 2):
        return part[2:]
    if part == "-0" or _ESCAPE.search(part):
        raise ValueError(f"{text!r} is no key path: {part!r} is no key")
    return part.replace("~1", "/").replace("~0", "~")


def glob(pattern: str) -> Callable[[str], bool]:
    """Make a test of key paths' texts: `*`, `?` and `[..]` as in `fnmatchcase`, across slashes."""
    match = re.compile(fnmatch.translate(pattern)).match
    return lambda text: match(text) is not None


def key_size(key: Key) -> int:
    """Weigh a key for the limit on key paths: its UTF-8 bytes (an integer: 8) and 1."""
    if key is None:
        return 1
    if isinstance(key, int):
        return 9
    return 1 + (len(key) if key.isascii() else len(key.encode("utf-8", "surrogatepass")))


def key_fits(key: Key) -> bool:
    """Whether a key keeps within the limits: 2^20 bytes of text, integers from -2^63 to 2^64 - 1.

    Larger integers are not keys because anyone could make many of the same hash.
    """
    if isinstance(key, int):
        return -(2**63) <= key < 2**64
    return key is None or len(key) <= MAX_TEXT // 4 or key_size(key) <= MAX_TEXT + 1
