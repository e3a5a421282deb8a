"""A field that takes more than it keeps is an ordinary field where the program runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated, get_type_hints

import pytest
from pydantic import BaseModel, BeforeValidator, ValidationError

from tokenpipe.accepts import Accepts, default


@dataclasses.dataclass(frozen=True, slots=True)
class Stops:
    """A dataclass that makes a tuple of what it is given."""

    texts: Accepts[tuple[str, ...], Iterable[str]] = default(("end",))

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", tuple(self.texts))


Whole = Annotated[int, BeforeValidator(int)]


class Size(BaseModel):
    """A model that reads a number from a text."""

    bytes: Accepts[Whole, str] = default(7)


def test_the_type_is_the_one_that_is_kept() -> None:
    assert get_type_hints(Stops) == {"texts": tuple[str, ...]}
    assert get_type_hints(Size, include_extras=True)["bytes"] == Whole


def test_a_dataclass_has_the_default_and_takes_the_other_type() -> None:
    assert Stops().texts == ("end",)
    assert Stops(texts=["a", "b"]) == Stops(("a", "b"))


def test_pydantic_checks_the_type_that_is_kept() -> None:
    assert Size().bytes == 7
    assert Size(bytes="12").bytes == 12
    with pytest.raises(ValidationError):
        Size(bytes="many")
