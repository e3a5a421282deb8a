"""Bodies of requests: what is served, what is passed over, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from tokenpipe.api.problems import Problem
from tokenpipe.api.request_models import ChatCompletionRequest, CompletionRequest
from tokenpipe.instance import STANDARD_FIELDS


def test_the_standard_fields_are_those_of_the_two_bodies() -> None:
    """An executor may declare none of these; the worker's process checks that without pydantic."""
    assert (
        set(CompletionRequest.model_fields) | set(ChatCompletionRequest.model_fields)
        == STANDARD_FIELDS
    )


def test_what_asks_for_nothing_is_passed_over() -> None:
    body: dict[str, Any] = {"prompt": "x", "user": "me", "echo": False, "logit_bias": None}
    CompletionRequest.model_validate(body).refuse_what_is_not_served()
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "tools": []}
    ChatCompletionRequest.model_validate(chat).refuse_what_is_not_served()
    with pytest.raises(Problem) as caught:
        ChatCompletionRequest.model_validate({**chat, "tools": [{}]}).refuse_what_is_not_served()
    assert caught.value.param == "tools" and caught.value.status == 400
