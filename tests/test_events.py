"""Events: one union of values, which an engine can match, keep and compare."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import pytest

from tokenpipe import events
from tokenpipe.types import Request, RescheduleReason, SamplingParams

CLASSES: list[type[Any]] = [
    value
    for value in vars(events).values()
    if isinstance(value, type) and value.__module__ == events.__name__
]


def test_the_union_has_every_event() -> None:
    assert set(get_args(events.Event)) == set(CLASSES)


@pytest.mark.parametrize("cls", CLASSES)
def test_an_event_is_a_value_without_room_for_more(cls: type[Any]) -> None:
    names = [field.name for field in dataclasses.fields(cls)]
    values = {name: index for index, name in enumerate(names)}
    event = cls(**values)
    assert event == cls(**values) != cls(**{**values, names[0]: -1})
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(event, names[0], 3)
    assert not hasattr(event, "__dict__")


def test_a_match_takes_fields_in_the_order_of_the_declaration() -> None:
    request = Request(7, "r", 0, (1,), SamplingParams())
    match events.Released(request, 5, "drained"):
        case events.Released(whose, handle, why):
            assert (whose, handle, why) == (request, 5, "drained")
    for cls in CLASSES:
        assert cls.__match_args__ == tuple(field.name for field in dataclasses.fields(cls))
        if "request" in cls.__match_args__:
            assert cls.__match_args__[0] == "request"


def test_events_share_no_list_of_ids() -> None:
    request = Request(7, "r", 0, (1,), SamplingParams())
    gap = RescheduleReason.GAP
    first, second = (events.Rescheduled(request, handle, gap) for handle in (1, 2))
    first.output_token_ids.append(3)
    assert second.output_token_ids == []
