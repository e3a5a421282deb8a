"""No field that asks for something is swallowed: served, handed to the engine, or a 400 by name."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types import completion_create_params as completions
from openai.types.chat import completion_create_params as chats

from tests.api.known_fields import CHAT, COMPLETION, OPENAI_CHAT, OPENAI_COMPLETION
from tokenpipe.api.problems import Problem
from tokenpipe.api.request_check import executor_fields
from tokenpipe.api.request_models import ChatCompletionRequest, CompletionRequest
from tokenpipe.api.unserved_fields import NEUTRAL, WITHOUT_EFFECT
from tokenpipe.instance import STANDARD_FIELDS, ModelCard

NEEDED: dict[Any, dict[str, Any]] = {
    CompletionRequest: {"prompt": "x"},
    ChatCompletionRequest: {"messages": [{"role": "user", "content": "x"}]},
}
EACH: list[tuple[Any, ...]] = [
    (CompletionRequest, name, *values) for name, values in COMPLETION.items()
]
EACH += [(ChatCompletionRequest, name, *values) for name, values in CHAT.items()]


def check(model: Any, name: str, value: Any, *declared: str) -> Any:
    body = {**NEEDED[model], name: value}
    if name == "stream_options" and value is not None:
        body["stream"] = True
    made = model.model_validate(body)
    return made, executor_fields(made, ModelCard(declared))


@pytest.mark.case("F29")
@pytest.mark.parametrize(("model", "name", "nothing", "something"), EACH)
def test_no_field_is_swallowed(model: Any, name: str, nothing: Any, something: Any) -> None:
    check(model, name, nothing)
    if name not in NEEDED[model]:
        check(model, name, None)
    if name in model.model_fields:
        made, _ = check(model, name, something)
        assert name in made.model_fields_set and name in STANDARD_FIELDS
    elif name in WITHOUT_EFFECT:
        check(model, name, something)
    else:
        with pytest.raises(Problem) as caught:
            check(model, name, something)
        assert (caught.value.status, caught.value.param) == (400, name)
        assert caught.value.message.startswith(f"{name}: ")
        _, extra = check(model, name, something, name)
        assert extra


@pytest.mark.case("F29")
@pytest.mark.parametrize(
    ("model", "name"),
    [(CompletionRequest, n) for n in sorted(STANDARD_FIELDS - set(CompletionRequest.model_fields))]
    + [
        (ChatCompletionRequest, n)
        for n in sorted(STANDARD_FIELDS - set(ChatCompletionRequest.model_fields))
    ],
)
def test_a_field_of_the_other_endpoint_is_refused(model: Any, name: str) -> None:
    with pytest.raises(Problem, match=f"^{name}: not a field of this endpoint$"):
        check(model, name, 1)


def test_a_field_has_one_fate() -> None:
    assert not STANDARD_FIELDS & NEUTRAL.keys()
    assert not (STANDARD_FIELDS | NEUTRAL.keys()) & WITHOUT_EFFECT


def test_the_list_of_openai_is_that_of_the_installed_client() -> None:
    """A newer client may have more fields; each of them belongs into the list."""
    if openai.__version__.split(".")[0] != "3":
        pytest.skip("the list is of openai 3")
    for listed, params in (
        (OPENAI_COMPLETION, completions.CompletionCreateParamsBase),
        (OPENAI_CHAT, chats.CompletionCreateParamsBase),
    ):
        assert set(params.__annotations__) <= set(listed)
