"""Turn the messages of a conversation into the mappings that a chat template reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .problems import Problem
from .request_models import ChatMessage


def as_mappings(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return a mapping for each message: its content is one text, arguments are mappings.

    A caller gives the arguments of a tool call as JSON text, templates read them as a mapping.
    Raises Problem, a 400, for arguments that are no JSON.
    """
    dumped = []
    for i, message in enumerate(messages):
        made = {**message.model_dump(exclude_none=True), "content": message.text}
        calls = made.get("tool_calls")
        if isinstance(calls, list):
            made["tool_calls"] = [
                _call(call, f"messages.{i}.tool_calls.{nth}") for nth, call in enumerate(calls)
            ]
        if "function_call" in made:
            made["function_call"] = _function(made["function_call"], f"messages.{i}.function_call")
        dumped.append(made)
    return dumped


def _call(call: Any, path: str) -> Any:
    if not isinstance(call, dict) or "function" not in call:
        return call
    return {**call, "function": _function(call["function"], f"{path}.function")}


def _function(function: Any, path: str) -> Any:
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return function
    text = function["arguments"]
    try:
        return {**function, "arguments": json.loads(text) if text.strip() else {}}
    except (ValueError, RecursionError) as error:
        what = f"{path}.arguments: is not JSON: {error}"
        raise Problem(400, what, param="messages", code="invalid_value") from None
