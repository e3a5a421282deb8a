"""A dataclass is written and read as its annotations say; an error names class and field."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest

from tokenpipe.errors import FieldError
from tokenpipe.wire.fields import Int, Utf8
from tokenpipe.wire.schema import ArraySpec, map_spec

Small = Annotated[int, Int(0, 9)]


@dataclass(frozen=True)
class Point:
    """A class with a required and an optional field."""

    x: Small
    name: Annotated[str, Utf8()] = "p"

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise ValueError("a bad name")


POINT = map_spec(Point)


@dataclass(frozen=True)
class Line:
    """A class whose field is a tuple of another class."""

    points: Annotated[tuple[Point, ...], ArraySpec(POINT, limit=2)]
    marks: Small = field(default_factory=lambda: 7)


LINE = map_spec(Line)


def test_there_and_back() -> None:
    line = Line((Point(1), Point(2, "q")), 3)
    raw = LINE.encode(line)
    assert raw == {"points": [{"x": 1}, {"x": 2, "name": "q"}], "marks": 3}
    assert LINE.decode(raw) == line


def test_absent_fields_take_their_default_and_unknown_ones_are_skipped() -> None:
    assert POINT.decode({"x": 1, "color": [1, 2]}) == Point(1)
    assert LINE.decode({"points": []}) == Line((), 7)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ([], r"Line: expected a map, got list \[\]"),
        ({}, "Line.points: absent"),
        ({"points": {}}, "Line.points: expected an array of at most 2 maps, got dict"),
        ({"points": [{"x": 1}] * 3}, "Line.points: expected an array of at most 2 maps"),
        ({"points": [{"x": 1}, {}]}, "Line.points: Point.x: absent"),
        ({"points": [{"x": 10}]}, r"Line.points: Point.x: expected an integer in 0\.\.9, got int"),
        ({"points": [{"x": 1, "name": "bad"}]}, "Line.points: Point: a bad name"),
        ({"points": [], "marks": None}, "Line.marks: expected an integer"),
    ],
)
def test_what_cannot_be_read_is_named(raw: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LINE.decode(raw)


@pytest.mark.parametrize(
    ("line", "field_name", "says"),
    [
        (Line((Point(10),)), "Line.points", "Point.x: expected an integer"),
        (Line((Point(1),) * 3), "Line.points", "expected at most 2 entries, got 3"),
        (Line((), -1), "Line.marks", "expected an integer"),
        (Line((Point("1"),)), "Line.points", "Point.x: 'str' object"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_sent_is_a_field_error(line: Line, field_name: str, says: str) -> None:
    with pytest.raises(FieldError) as caught:
        LINE.encode(line)
    assert caught.value.field == field_name and caught.value.problem.startswith(says)


def test_a_field_that_does_not_say_how_it_is_written_is_refused_at_once() -> None:
    @dataclass
    class Bare:
        x: int

    Bare.__annotations__["x"] = int  # as it is where annotations are not postponed
    with pytest.raises(TypeError, match=r"Bare\.x: its annotation has no spec"):
        map_spec(Bare)
