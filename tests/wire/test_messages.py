"""The declarations of control messages: each has a tag, and each field says how it is written."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest

from tokenpipe.types import SamplingParams, make_handle
from tokenpipe.wire import Bind, Message, StepBind, StepPlan, pack_control, unpack_control
from tokenpipe.wire.messages import TAGS
from tokenpipe.wire.sampling_spec import PARAMS


def test_tags_are_unique_and_every_field_says_how_it_is_written() -> None:
    assert len(set(TAGS.values())) == len(TAGS)
    assert set(TAGS.values()) == set(get_args(Message))
    for cls in TAGS.values():
        hints = get_type_hints(cls, include_extras=True)
        assert all(get_origin(hints[f.name]) is Annotated for f in fields(cls))


@pytest.mark.case("F32")
def test_sampling_params_are_written_without_defaults() -> None:
    params = SamplingParams(max_tokens=3, stop=["a"], stop_token_ids=[7], seed=-1, logprobs=2)
    raw = PARAMS.encode(params)
    assert set(raw) == {"max_tokens", "stop", "stop_token_ids", "seed", "logprobs"}
    assert PARAMS.decode(raw) == params
    assert PARAMS.decode({}) == SamplingParams()


@pytest.mark.case("F32")
def test_binds_are_small() -> None:
    binds = [Bind(make_handle(0, n, 1), 1 << 62, n, 0, 1000) for n in range(256)]
    assert len(pack_control((1, 2, 3, 4), binds)) < 256 * 75
    assert unpack_control(pack_control((1, 2, 3, 4), binds))[1] == binds


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
