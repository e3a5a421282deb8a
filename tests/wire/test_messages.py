"""The declarations of control messages: each has a tag, and each field says how it is written."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from tokenpipe.types import SamplingParams
from tokenpipe.wire import Message, StepBind, StepPlan
from tokenpipe.wire.messages import TAGS
from tokenpipe.wire.sampling_spec import PARAMS


def test_tags_are_unique_and_every_field_says_how_it_is_written() -> None:
    assert len(set(TAGS.values())) == len(TAGS)
    assert set(TAGS.values()) == set(get_args(Message))
    for cls in TAGS.values():
        hints = get_type_hints(cls, include_extras=True)
        assert all(get_origin(hints[f.name]) is Annotated for f in fields(cls))


def test_sampling_params_are_written_whole() -> None:
    params = SamplingParams(max_tokens=3, stop=["a"], stop_token_ids=[7], seed=-1, logprobs=2)
    raw = PARAMS.encode(params)
    assert set(raw) == {f.name for f in fields(SamplingParams)}
    assert PARAMS.decode(raw) == params
    assert PARAMS.decode({}) == SamplingParams()


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p"])
def test_a_number_that_is_none_is_named(name: str) -> None:
    wrong: dict[str, Any] = {name: float("nan")}
    with pytest.raises(ValueError, match=rf"SamplingParams\.{name}: expected a finite number"):
        PARAMS.encode(SamplingParams(**wrong))


def test_a_message_is_a_value_without_room_for_more() -> None:
    plan = StepPlan(1, (StepBind(5, 7, 0),), (3,))
    assert plan == StepPlan(1, (StepBind(5, 7, 0),), (3,)) and hash(plan)
    assert not hasattr(plan, "__dict__")
    with pytest.raises(AttributeError):
        plan.number = 2  # type: ignore[misc]


def test_the_fields_of_a_request_are_read_from_its_bind() -> None:
    assert StepBind(5, 7, 0, extra=b'{"guided": [1]}').request_fields == {"guided": [1]}
    assert StepBind(5, 7, 0).request_fields == {}
    with pytest.raises(ValueError):
        StepBind(5, 7, 0, extra=b"\xff").request_fields  # noqa: B018
