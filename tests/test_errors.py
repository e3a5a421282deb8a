"""Errors: one tree, what is kept where one is raised again, and the first line of a message."""

from __future__ import annotations

import pickle
import re

import pytest

from tokenpipe import errors
from tokenpipe.errors import (
    FieldError,
    LaneError,
    RowsFailed,
    TokenpipeError,
    afresh,
    first_line,
)

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and value.__module__ == errors.__name__
]
LINE = re.compile(r"((?:│   )*)[├└]── (\w+)")


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    drawn = {"TokenpipeError": "Exception"}
    above = ["TokenpipeError"]
    for match in filter(None, map(LINE.match, str(errors.__doc__).splitlines())):
        depth = 1 + len(match[1]) // 4
        above[depth:] = [match[2]]
        drawn[match[2]] = above[depth - 1]
    made = {cls.__name__: cls.__bases__[0].__name__ for cls in CLASSES}
    assert drawn == made


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_is_one_of_ours_and_travels_by_pickle(cls: type[TokenpipeError]) -> None:
    given: tuple[object, ...] = ("field", "is wrong") if cls is FieldError else ("is wrong",)
    error = cls([1], "is wrong") if cls is RowsFailed else cls(*given)
    assert isinstance(error, TokenpipeError) and "is wrong" in str(error)
    if cls is not RowsFailed:  # raised by a model and caught in its own process
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is cls and again.args == error.args


def test_an_error_of_rows_names_them_and_says_so_without_words() -> None:
    error = RowsFailed(iter([4, 3, 4]))
    assert error.handles == {3, 4} and str(error) == "the model cannot continue some rows"


def test_the_first_line_is_what_the_error_says_and_not_its_log() -> None:
    assert first_line("worker 0 did not start\nTraceback ...\n") == "worker 0 did not start"
    assert first_line(LaneError("lane x: lost")) == "lane x: lost"
    assert first_line("") == ""


def test_an_error_said_afresh_keeps_its_words_cause_and_notes() -> None:
    cause = OSError("no")
    first = RowsFailed([3, 4], "why")
    first.__dict__["__notes__"] = ["of step 7"]
    with pytest.raises(RowsFailed):
        raise first from cause
    again = afresh(first)
    assert type(again) is RowsFailed and again.args == ("why",) and again.handles == {3, 4}
    assert again.__cause__ is cause and again.__traceback__ is None and again is not first
    again.__dict__["__notes__"].append("once more")
    assert first.__dict__["__notes__"] == ["of step 7"]
    assert "__notes__" not in afresh(LaneError("x")).__dict__
