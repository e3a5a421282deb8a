"""Specs of fields: what is written can be read, and what is refused is refused at either end."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpipe.wire.fields import Blob, Flag, Int, Ints, Numbers, OneOf, Real, Strings, Utf8, got


class Color(IntEnum):
    """An enumeration with a hole."""

    RED = 1
    BLUE = 4


ids = st.lists(st.integers(0, (1 << 31) - 1), max_size=9).map(tuple)
texts = st.text(st.characters(codec="utf-8"), max_size=9)
GOOD: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": (Int(-5, 1 << 63), st.integers(-5, 1 << 63)),
    "optional": (Int(0, 9, optional=True), st.none() | st.integers(0, 9)),
    "real": (Real(), st.floats(allow_nan=False, allow_infinity=False)),
    "flag": (Flag(), st.booleans()),
    "text": (Utf8(), texts),
    "strings": (Strings(9, 400), st.lists(texts.filter(bool), max_size=9).map(tuple)),
    "one of": (OneOf(Color), st.sampled_from(Color)),
    "blob": (Blob(), st.binary(max_size=9)),
    "ints": (Ints("i", 9), ids),
    "wide": (Ints("q", 9), st.lists(st.integers(0, (1 << 63) - 1), max_size=9).map(tuple)),
    "numbers": (Numbers(), st.dictionaries(texts, st.integers(0, 1 << 63), max_size=3)),
}


@pytest.mark.parametrize("name", GOOD)
@given(data=st.data())
def test_what_is_written_is_read(name: str, data: st.DataObject) -> None:
    spec, values = GOOD[name]
    value = data.draw(values)
    raw = msgpack.unpackb(msgpack.packb(spec.encode(value)))
    back = spec.decode(raw)
    assert back == value and type(back) is type(value)


@pytest.mark.parametrize(
    ("spec", "raw", "says"),
    [
        (Int(0, 9), 10, r"expected an integer in 0\.\.9, got int 10"),
        (Int(0, 9), -1, "got int -1"),
        (Int(0, 9), True, "got bool True"),
        (Int(0, 9), 3.0, r"got float 3\.0"),
        (Int(0, 9), None, "got NoneType None"),
        (Real(), float("nan"), "expected a finite number, got float nan"),
        (Real(), float("inf"), "got float inf"),
        (Real(), True, "got bool True"),
        (Real(), "1.0", "got str '1.0'"),
        (Flag(), 1, "expected true or false, got int 1"),
        (Utf8(), b"x", "expected a string, got bytes"),
        (Utf8(3), "abcd", "expected at most 3 bytes of text, got 4"),
        (Utf8(3), "éé", "expected at most 3 bytes of text, got 4"),
        (Strings(2, 9), ["a", "b", "c"], "expected at most 2 strings"),
        (Strings(2, 9), ("a",), "expected at most 2 strings, got tuple"),
        (Strings(2, 9), ["a", ""], "none of them empty"),
        (Strings(2, 9), ["a", b"b"], "expected strings"),
        (Strings(2, 3), ["é", "éé"], "expected at most 3 bytes of strings"),
        (OneOf(Color), 2, "2 is not a valid Color"),
        (OneOf(Color), True, "expected an integer, got bool"),
        (OneOf(Color), None, "expected an integer, got NoneType"),
        (Blob(), "x", "expected bytes, got str"),
        (Blob(3), b"abcd", "expected at most 3 bytes, got 4"),
        (Ints("i", 9), [1], "expected a bin of integers, got list"),
        (Ints("i", 9), b"12345", "expected at most 9 integers, got 5 bytes"),
        (Ints("i", 1), bytes(8), "expected at most 1 integers, got 8 bytes"),
        (Ints("q", 9), b"\xff" * 8, "expected integers >= 0"),
        (Numbers(), {"a": "b"}, "expected a map of names to integers"),
        (Numbers(), {1: 1}, "expected a map of names to integers"),
        (Numbers(), {"a": True}, "got dict"),
    ],
)
def test_what_does_not_fit_is_not_read(spec: Any, raw: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        spec.decode(raw)


@pytest.mark.parametrize(
    ("spec", "value", "says"),
    [
        (Int(0, 9), 10, r"in 0\.\.9"),
        (Real(), float("inf"), "finite"),
        (Utf8(), "\ud800", "surrogates"),
        (Strings(1, 9), ["a", "b"], "at most 1 strings"),
        (OneOf(Color), 3, "not a valid Color"),
        (Blob(1), b"ab", "at most 1 bytes"),
        (Ints("i", 9), [1 << 31], "expected integers of 'i'"),
        (Ints("i", 9), ["1"], "expected integers of 'i'"),
        (Ints("i", 9), [-1], "integers >= 0"),
        (Ints("i", 1), [1, 2], "at most 1 integers"),
        (Numbers(), {"a": 1.5}, "names to integers"),
    ],
)
def test_what_could_not_be_read_is_not_written(spec: Any, value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        spec.encode(value)


def test_numbers_of_numpy_are_written_as_ours() -> None:
    assert Int(0, 9).encode(np.int32(4)) == 4 and type(Int(0, 9).encode(np.int32(4))) is int
    array: Any = np.array([1, 2], np.int32)
    assert Ints("i", 9).encode(array) == Ints("i", 9).encode((1, 2))
    assert Real().encode(np.float32(0.5)) == 0.5
    assert Flag().encode(np.True_) is True
    with pytest.raises(TypeError):
        Int(0, 9).encode(1.0)


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [("abc", 9, "abc"), ("abcd", 3, "abc"), ("üü", 3, "ü"), ("ü" * 40_000, 65_535, "ü" * 32_767)],
)
def test_a_text_for_people_is_cut_at_a_character(text: str, limit: int, kept: str) -> None:
    assert Utf8(limit, cut=True).encode(text) == kept


def test_a_text_for_people_is_never_refused() -> None:
    assert Utf8(cut=True).encode("a\ud800b") == "a?b"


def test_a_refused_value_is_shown_in_few_characters() -> None:
    assert got("x" * 100) == "str 'xxxxxxxxxxxxxxxxxxxx'"
    assert got(list(range(100))) == f"list {list(range(100))!r:.40}"
    assert len(got(10**100)) < 60
