"""Texts that are not what they seem."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpipe.config import load_yaml
from tokenpipe.errors import ConfigError


def test_values_and_lines() -> None:
    document = load_yaml("# top\na: 1\nb:\n  - x\n  - {c: on}\n", "f")
    assert document.value == {"a": 1, "b": ["x", {"c": "on"}]}
    assert not document.problems
    assert [document.line(path) for path in (("a",), ("b", 1), ("b", 1, "c"))] == [2, 5, 5]
    assert document.where(("b", 7, "nothing")) == "f:3"
    assert document.where(()) == "f:1"


def test_the_document_is_nothing() -> None:
    assert load_yaml("", "f").value is None
    assert load_yaml("", "f").where(("a",)) == "f:1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2", "f:2: a: the key is given twice"),
        ("s:\n  a: 1\n  'a': 2", "f:3: s.a: the key is given twice"),
        ("x: [{a: 1}, {a: 1,\n a: 2}]", "f:2: x[1].a: the key is given twice"),
        ("<<: {a: 1}", "f:1: document: a key must be a plain word (got <<)"),
        ("1: x", "f:1: document: a key must be a plain word (got 1)"),
        ("[a]: x", "f:1: document: a key must be a plain word (got a list or mapping)"),
        ("a: !mine 3", "f:1: a: the tag !mine is not allowed"),
        ("a: !!python/object:os.system {}", "f:1: a: the tag "),
        ("a: !!binary aGk=", "f:1: a: the tag "),
        ("a: !!int x", "f:1: a: cannot be read: "),
    ],
)
def test_problem_of_the_text(text: str, said: str) -> None:
    (problem,) = load_yaml(text, "f").problems
    assert problem.startswith(said)


@pytest.mark.parametrize("text", ["a: [", "\ta: 1", "a: 1\n---\nb: 2", "a: *b", "\x00", "a: 'x"])
def test_text_that_is_not_yaml(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^f(:\d+)?: not YAML: "):
        load_yaml(text, "f")


def test_aliases_are_read_and_neither_recurse_nor_explode() -> None:
    assert load_yaml("a: &x [1]\nb: *x", "f").value == {"a": [1], "b": [1]}
    assert load_yaml("a: &x [*x]", "f").value == {"a": [None]}
    bomb = "a0: &a0 [x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 40)
    )
    assert len(load_yaml(bomb, "f").value) == 40


@given(st.text(max_size=60) | st.text(alphabet="ab:-[]{}&*!#'\"\n 01.", max_size=60))
def test_any_text_gives_a_document_or_a_config_error(text: str) -> None:
    try:
        load_yaml(text, "f")
    except ConfigError as error:
        assert str(error).startswith("f")
