"""Messages as a template reads them."""

from __future__ import annotations

from typing import Any

import pytest

from tokenpipe.api.message_history import as_mappings
from tokenpipe.api.problems import Problem
from tokenpipe.api.request_models import ChatMessage


def mapped(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return as_mappings([ChatMessage.model_validate(message) for message in messages])


def call(arguments: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    calls = [{"id": "1", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def test_content_is_one_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert mapped({"role": "user", "content": parts, "name": "me"}, {"role": "assistant"}) == [
        {"role": "user", "content": "ab", "name": "me"},
        {"role": "assistant", "content": ""},
    ]


@pytest.mark.case("F36")
@pytest.mark.parametrize(
    ("given", "expected"),
    [('{"a": {"b": 1}}', {"a": {"b": 1}}), ("", {}), (" ", {}), ({"a": 1}, {"a": 1}), ("[1]", [1])],
)
def test_arguments_of_a_tool_call_are_parsed(given: Any, expected: Any) -> None:
    (message,) = mapped(call(given))
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": expected}
    (old,) = mapped({"role": "assistant", "function_call": {"name": "f", "arguments": given}})
    assert old["function_call"]["arguments"] == expected


@pytest.mark.case("F36")
@pytest.mark.parametrize("text", ["{", "call it", "[" * 100_000])
def test_arguments_that_are_no_json_are_refused_by_name(text: str) -> None:
    with pytest.raises(
        Problem, match=r"^messages\.1\.tool_calls\.0\.function\.arguments: "
    ) as caught:
        mapped({"role": "user", "content": "x"}, call(text))
    assert (caught.value.status, caught.value.param) == (400, "messages")


@pytest.mark.parametrize("calls", [5, [5], [{}], [{"function": 5}], [{"function": {"name": "f"}}]])
def test_calls_of_another_form_stay_as_they_are(calls: Any) -> None:
    (message,) = mapped({"role": "assistant", "tool_calls": calls})
    assert message["tool_calls"] == calls
