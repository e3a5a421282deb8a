"""A frozen configuration: what it takes, and that one error holds all that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from tokenpipe.accepts import Accepts, default
from tokenpipe.config import Conflict, FrozenConfig
from tokenpipe.errors import ConfigError


class Door(FrozenConfig, frozen=True):
    """A section."""

    width: Annotated[int, Field(ge=1)] = 1
    kind: Literal["plain", "glass"] = "plain"


class House(FrozenConfig, frozen=True):
    """A configuration whose values can be in conflict."""

    width: Annotated[int, Field(ge=1)] = 8
    floors: int = 1
    door: Accepts[Door, Mapping[str, Any]] = default(Door())
    names: tuple[str, ...] = ()

    def conflicts(self) -> Iterable[Conflict]:
        """Yield a door that is wider than its house, and a glass door of a tall one."""
        if self.door.width > self.width:
            yield Conflict(("door", "width"), f"wider than {self.width}", (("width",),))
        if self.floors > 3 and self.door.kind == "glass":
            yield Conflict(("door", "kind"), "too heavy", (("floors",),))


def refused(text: str) -> list[str]:
    """Return the lines of the error that a text gives."""
    with pytest.raises(ConfigError) as caught:
        House.loads(text, "h.yaml")
    return str(caught.value).split("\n")


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "{}", "null"])
def test_an_empty_text_gives_the_defaults(text: str) -> None:
    assert House.loads(text) == House() == House.checked({})


def test_it_is_a_value() -> None:
    made = House(width=9, door={"width": 2})
    assert made == House(width=9, door=Door(width=2)) != House(width=9)
    assert hash(made) == hash(House(width=9, door=Door(width=2)))
    assert made == House.loads("width: 9\ndoor: {width: 2}")
    with pytest.raises(ValueError, match="frozen"):
        made.width = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        made.door.width = 1  # type: ignore[misc]


@pytest.mark.parametrize("value", [True, "9", 9.0, None, [9]])
def test_no_type_is_guessed(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^width: must be an integer \(got "):
        House(width=value)


def test_python_gets_the_problems_of_all_sections_in_one_error() -> None:
    wrong: Any = {"width": 0, "door": {"width": "x", "color": 1}, "wdth": 3}
    with pytest.raises(ConfigError) as caught:
        House(**wrong)
    assert caught.value.__suppress_context__  # nobody reads pydantic's own words
    assert str(caught.value).split("\n") == [
        "width: must be greater than or equal to 1 (got 0)",
        'door.width: must be an integer (got "x")',
        "door.color: unknown key; known: kind, width",
        "wdth: unknown key; did you mean width?",
    ]


def test_combinations_of_what_is_right_are_among_all_problems_in_the_order_of_the_file() -> None:
    assert refused("floors: 4\ndoor:\n  kind: glass\n  width: 9\nnames: 1\nwindow: 2\n") == [
        "h.yaml:3: door.kind: too heavy",
        "h.yaml:4: door.width: wider than 8",
        "h.yaml:5: names: must be a list (got 1)",
        "h.yaml:6: window: unknown key; known: door, floors, names, width",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "width: x\ndoor: {width: 9}",  # the other key of the combination is wrong
        "width: 8\ndoor: {width: x, kind: glass}",
        "door: {kind: steel}\nfloors: 9",
        "door: glass\nfloors: 9",  # the section as a whole is wrong
        "door: {width: 9}\nwidth: [7]",
    ],
)
def test_what_is_wrong_by_itself_is_in_no_combination(text: str) -> None:
    (line,) = refused(text)
    assert "must be" in line


def test_python_also_gets_combinations_of_what_is_right() -> None:
    wrong: Any = {"door": {"width": 9}, "floors": "4"}
    with pytest.raises(ConfigError) as caught:
        House(**wrong)
    assert str(caught.value).split("\n") == [
        'floors: must be an integer (got "4")',
        "door.width: wider than 8",
    ]


def test_a_key_that_is_given_twice_stands_beside_one_that_is_wrong() -> None:
    assert refused("width: 2\nwidth: 3\nfloors: x\n") == [
        "h.yaml:2: width: the key is given twice",
        'h.yaml:3: floors: must be an integer (got "x")',
    ]


@pytest.mark.parametrize("text", ["false", "0", "[]", "text"])
def test_a_document_that_is_no_mapping(text: str) -> None:
    (line,) = refused(text)
    assert line.startswith("h.yaml:1: document: must be a mapping of keys (got ")
