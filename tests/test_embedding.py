"""The tables of docs/embedding.md name what an engine is given, and all of it."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from tokenpipe import Publisher, Request, RowExtras, StepBind, StepLogprobs, StepPlan
from tokenpipe.events import Event

PAGE = (Path(__file__).parents[1] / "docs" / "embedding.md").read_text()


def names(head: str) -> list[str]:
    """Return the code in the first cells of the table whose first line begins so."""
    lines = PAGE[PAGE.index(f"\n{head}") + 1 :].splitlines()
    body = lines[2 : next(n for n, line in enumerate(lines) if not line.startswith("|"))]
    return [code for line in body for code in re.findall(r"`([^`]*)`", line.split(" | ")[0])]


def test_the_events_and_their_fields() -> None:
    expected = [f"{e.__name__}({', '.join(f.name for f in fields(e))})" for e in get_args(Event)]
    assert sorted(names("| event | when it comes")) == sorted(expected)


@pytest.mark.parametrize(
    ("head", "of"),
    [
        ("| field | meaning |", Request),
        ("| field of a `StepPlan` |", StepPlan),
        ("| field of a `StepBind` |", StepBind),
        ("| of a `RowExtras` |", RowExtras),
    ],
)
def test_the_fields_of_what_one_handles(head: str, of: type) -> None:
    assert sorted(names(head)) == sorted(field.name for field in fields(of))


def test_the_arguments_of_publish() -> None:
    given = [name for name in inspect.signature(Publisher.publish).parameters if name != "self"]
    at = given.index("logprobs")
    given[at : at + 1] = [f"logprobs.{name}" for name in StepLogprobs._fields]
    assert sorted(names("| argument | type |")) == sorted(given)
