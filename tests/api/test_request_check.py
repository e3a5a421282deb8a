"""What a request may ask of the model that is served: judged before the engine sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tokenpipe.api.problems import Problem
from tokenpipe.api.request_check import TOO_LONG, executor_fields, max_tokens_of
from tokenpipe.api.request_models import ChatCompletionRequest, CompletionRequest
from tokenpipe.instance import ModelCard

CARD = ModelCard(("lora", "logit_bias"), 100)


def asked(**more: Any) -> CompletionRequest:
    return CompletionRequest.model_validate({"prompt": "x", **more})


def test_declared_fields_are_bundled_as_json() -> None:
    assert executor_fields(asked(user="me", mystery=1), CARD) == b""
    assert executor_fields(asked(lora=None, logit_bias=None), CARD) == b""
    bias = {"größe": [1, None, "\ud800"]}
    extra = executor_fields(asked(logit_bias=bias, lora=0), CARD)
    assert json.loads(extra) == {"lora": 0, "logit_bias": bias}
    chat = ChatCompletionRequest.model_validate({"messages": [{"role": "user"}], "lora": "a"})
    assert json.loads(executor_fields(chat, CARD)) == {"lora": "a"}


def test_what_nobody_declared_is_refused_by_name() -> None:
    for body, name in (({"logit_bias": {"1": 2}}, "logit_bias"), ({"tools": [{}]}, "tools")):
        with pytest.raises(Problem) as caught:
            executor_fields(asked(**body), ModelCard(("lora",)))
        assert (caught.value.status, caught.value.param) == (400, name)


@pytest.mark.parametrize(
    ("given", "prompt", "most", "expected"),
    [
        (None, 10, 100, 16),
        (None, 90, 100, 10),
        (None, 99, 100, 1),
        (None, 10_000, None, 16),
        (("max_tokens", 90), 10, 100, 90),
        (("max_tokens", 10_000), 10_000, None, 10_000),
    ],
)
def test_the_output_is_bounded_by_what_is_left(
    given: tuple[str, int] | None, prompt: int, most: int | None, expected: int
) -> None:
    assert max_tokens_of(given, 16, ("prompt", prompt), ModelCard((), most)) == expected


@pytest.mark.parametrize(
    ("given", "prompt", "param"),
    [
        (None, 100, "messages"),
        (("max_tokens", 1), 100, "messages"),
        (("max_completion_tokens", 91), 10, "max_completion_tokens"),
    ],
)
def test_what_does_not_fit_has_openais_code(
    given: tuple[str, int] | None, prompt: int, param: str
) -> None:
    with pytest.raises(Problem, match=r"max_model_len.*100") as caught:
        max_tokens_of(given, 16, ("messages", prompt), CARD)
    problem = caught.value
    assert (problem.status, problem.code, problem.param) == (400, TOO_LONG, param)
    assert problem.body["error"]["type"] == "invalid_request_error"
