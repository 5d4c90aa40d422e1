from __future__ import annotations

from typing import Any

import pytest
from ckptz import keypath
from hypothesis import given
from hypothesis import strategies as st
from trees import keys, texts


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), "~3"),
        (("",), ""),
        (("", ""), "/"),
        (("optimizer", "state", 0, "exp_avg"), "optimizer/state/0/exp_avg"),
        ((0,), "0"),
        (("0",), "~20"),
        (("-1",), "~2-1"),
        ((-1,), "-1"),
        (("-0",), "~2-0"),
        (("00", "1e5", "+1", "\u0661"), "00/1e5/+1/\u0661"),
        (("1\n",), "1\n"),
        (("a/b", "~"), "a~1b/~0"),
        (("~1", "~2", "~3", "~4"), "~01/~02/~03/~04"),
        (("~20",), "~020"),
        ((None, "version"), "~4/version"),
        (("../x", "a.b", "__metadata__", "\0", "\ud800"), "..~1x/a.b/__metadata__/\0/\ud800"),
    ],
)
def test_paths_and_their_texts(path: tuple[Any, ...], text: str) -> None:
    assert keypath.to_text(path) == text
    assert keypath.from_text(text) == path


@given(st.lists(st.one_of(keys(), st.none()), max_size=4).map(tuple))
def test_text_determines_the_path(path: tuple[Any, ...]) -> None:
    back = keypath.from_text(keypath.to_text(path))
    assert back == path
    assert list(map(type, back)) == list(map(type, path))


@given(texts())
def test_path_determines_the_text(text: str) -> None:
    try:
        path = keypath.from_text(text)
    except ValueError:
        return
    assert keypath.to_text(path) == text


@pytest.mark.parametrize(
    "text", ["~", "a~", "~5", "~2", "~2x", "~200", "-0", "~3/a", "a/~3", "~4x"]
)
def test_texts_that_are_no_path(text: str) -> None:
    with pytest.raises(ValueError, match="no key path"):
        keypath.from_text(text)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*/exp_avg", "optimizer/state/0/exp_avg", True),
        ("*/exp_avg", "optimizer/state/0/exp_avg_sq", False),
        ("model/*", "model/a/b", True),
        ("model/*", "model", False),
        ("*", "", True),
        ("*", "a\nb", True),
        ("a?c", "a/c", True),
        ("layer[12]", "layer2", True),
        ("Model", "model", False),
    ],
)
def test_glob(pattern: str, text: str, expected: bool) -> None:
    assert keypath.glob(pattern)(text) is expected


def test_limits_of_keys() -> None:
    assert keypath.key_fits("a" * 2**20)
    assert not keypath.key_fits("a" * (2**20 + 1))
    assert keypath.key_fits("é" * 2**19)
    assert not keypath.key_fits("é" * 2**19 + "a")
    assert keypath.key_fits(2**64 - 1)
    assert keypath.key_fits(-(2**63))
    assert not keypath.key_fits(2**64)
    assert not keypath.key_fits(-(2**63) - 1)
