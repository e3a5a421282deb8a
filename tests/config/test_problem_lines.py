"""What pydantic finds is written as one line a problem: where, what is wanted, what was given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tokenpipe.config import load_yaml
from tokenpipe.config.problem_lines import line_of, lines_of, problems_of


class Part(BaseModel):
    """A section."""

    model_config = ConfigDict(strict=True, extra="forbid")
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False, description="seconds")] = 1.0


class Whole(BaseModel):
    """A key of each kind that has words of its own."""

    model_config = ConfigDict(strict=True, extra="forbid")
    count: int = 1
    size: Annotated[int, Field(description="bytes as a plain integer")] = 1
    ratio: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    name: Annotated[str, Field(min_length=1, pattern=r"^[^/]*$")] = "x"
    mode: Literal["block", "fail"] = "block"
    ids: tuple[int, ...] = ()
    path: Path = Path()
    part: Part = Part()


def problem(**values: Any) -> str:
    """Return the one line for wrong values."""
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate(values)
    (line,) = lines_of(problems_of(caught.value, Whole), None)
    return line


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("count", "3", 'count: must be an integer (got "3")'),
        ("count", True, "count: must be an integer (got true)"),
        ("size", "1MiB", 'size: must be bytes as a plain integer (got "1MiB")'),
        ("ratio", None, "ratio: must be a number (got null)"),
        ("ratio", float("inf"), "ratio: must be a finite number (got Infinity)"),
        ("name", 3, "name: must be a string (got 3)"),
        ("name", "", 'name: must be a non-empty string (got "")'),
        ("name", "a/b", 'name: must be a plain file name (got "a/b")'),
        ("mode", "wait", 'mode: must be "block" or "fail" (got "wait")'),
        ("ids", 7, "ids: must be a list (got 7)"),
        ("ids", (1, "on"), 'ids[1]: must be an integer (got "on")'),
        ("path", 7, "path: must be a path (got 7)"),
        ("part", [], "part: must be a mapping of keys (got [])"),
        ("part", {"seconds": "5s"}, 'part.seconds: must be seconds (got "5s")'),
        ("part", {"seconds": 0}, "part.seconds: must be greater than 0 (got 0)"),
        ("part", {"second": 1}, "part.second: unknown key; did you mean seconds?"),
        ("part", {"x": 1}, "part.x: unknown key; known: seconds"),
        ("cuont", 1, "cuont: unknown key; did you mean count?"),
    ],
)
def test_a_problem_is_a_line(key: str, value: Any, said: str) -> None:
    assert problem(**{key: value}) == said


def test_a_value_is_shown_as_json_where_it_can_be_and_never_at_length() -> None:
    assert problem(count="é") == 'count: must be an integer (got "é")'
    assert problem(count={1, 2}) == "count: must be an integer (got {1, 2})"
    shown = problem(count="x" * 200).split("got ")[1]
    assert len(shown) == 81 and shown.endswith("...)")


def test_lines_stand_in_the_order_of_the_file() -> None:
    document = load_yaml("part:\n  seconds: x\ncount: y\n", "f.yaml")
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate(document.value)
    problems = problems_of(caught.value, Whole)
    assert [path for path, _ in problems] == [("count",), ("part", "seconds")]  # as declared
    assert lines_of(problems, document) == [
        'f.yaml:2: part.seconds: must be seconds (got "x")',
        'f.yaml:3: count: must be an integer (got "y")',
    ]
    assert [line.split(": ")[0] for line in lines_of(problems, None)] == ["count", "part.seconds"]


def test_a_problem_of_the_whole_document_names_it() -> None:
    assert line_of((), "must be a list", None) == "document: must be a list"
    assert line_of((), "must be a list", load_yaml("a: 1", "f")) == "f:1: document: must be a list"
