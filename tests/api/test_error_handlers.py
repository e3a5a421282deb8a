"""Errors in OpenAI's form, whatever raised them."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from tests.conftest import eventually
from tests.serve.running import Running

PROMPT = [1, 2, 3]
PROMPT_IS = (
    "prompt: must be a text, a list of token ids (integers from 0 to 2147483647), or a list of "
    "either (got "
)
CONTENT_IS = (
    'messages.1.content: must be a text, or a list of parts {"type": "text", "text": ...} (got '
)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "x", "max_tokens": "many"}, "max_tokens"),
        ({"prompt": "x", "n": 0}, "n"),
        ({"prompt": "x", "n": 1000}, "n"),
        ({"prompt": "x", "temperature": -1}, "temperature"),
        ({"prompt": "x", "top_p": 2}, "top_p"),
        ({"prompt": "x", "logprobs": 21}, "logprobs"),
        ({"prompt": "x", "min_tokens": 99}, "min_tokens"),
        ({"prompt": "x", "stop": "END"}, "stop"),
        ({"prompt": "x", "stop_token_ids": [1 << 31]}, "stop_token_ids"),
        ({"prompt": "x", "stream_options": {"include_usage": True}}, "stream_options"),
        ({"prompt": "x", "echo": True}, "echo"),
        ({"prompt": "x", "best_of": 3}, "best_of"),
        ({"prompt": "x", "logit_bias": {"1": 5}}, "logit_bias"),
        ({"prompt": "x", "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_wrong_field_is_named(server: Running, body: dict[str, Any], param: str) -> None:
    answer = server.post("/v1/completions", body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param and param in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"prompt": [1 << 31]}, PROMPT_IS + "[2147483648])"),
        ({"prompt": [[1], ["a"]]}, PROMPT_IS + '[[1], ["a"]])'),
        ({"prompt": None}, PROMPT_IS + "null)"),
        ({"prompt": "x", "stop": 5}, "stop: must be a string, or a list of at most 16 (got 5)"),
        ({"prompt": "x", "stop": ["a"] * 17}, "stop: must be a string, or a list of at most 16"),
        ({"messages": [{"content": 5}]}, CONTENT_IS + "5)"),
        ({"messages": [{"content": [{"type": "image_url"}]}]}, CONTENT_IS + '[{"type": "image'),
        ({"messages": [{"role": "wizard"}]}, "messages.1.role: Input should be 'system', "),
    ],
)
def test_wrong_field_is_told_without_the_parsers_words(
    server: Running, body: dict[str, Any], said: str
) -> None:
    path = "completions"
    if "messages" in body:
        path = "chat/completions"
        first = {"role": "user", "content": "x"}
        body = {"messages": [first, *({**first, **message} for message in body["messages"])]}
    answer = server.post(f"/v1/{path}", body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["message"].startswith(said), error
    assert error["param"] == next(iter(said.split(":")[0].split(".")))


def test_unknown_field_is_passed_over_as_documented(server: Running) -> None:
    body = {"prompt": [1], "max_tokens": 1, "temperatur": 5}
    assert server.post("/v1/completions", body).status_code == 200


@pytest.mark.parametrize(
    ("prompt", "token"), [([999], 999), ([[1], [256, 1]], 256)], ids=["one", "of two"]
)
def test_prompt_outside_of_the_vocabulary(server: Running, prompt: Any, token: int) -> None:
    answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["message"] == f"prompt: {token} is outside of vocab_size 256"
    assert error["param"] == "prompt"
    assert eventually(server.idle)
    last = server.post("/v1/completions", {"prompt": [255], "max_tokens": 1})
    assert last.status_code == 200


def test_other_errors_have_the_same_form(server: Running) -> None:
    with server.client() as client:
        with pytest.raises(openai.NotFoundError, match="there is no 'gpt'"):
            client.completions.create(model="gpt", prompt=PROMPT)
        with pytest.raises(openai.BadRequestError, match="top_logprobs"):
            messages: Any = [{"role": "user", "content": "x"}]
            client.chat.completions.create(model="tokenpipe", messages=messages, top_logprobs=1)
        assert [model.id for model in client.models.list()] == ["tokenpipe"]
    broken = httpx.post(
        f"{server.url}/v1/completions", content=b"{", headers={"content-type": "application/json"}
    )
    assert broken.status_code == 400 and "not JSON" in broken.json()["error"]["message"]
    assert httpx.get(f"{server.url}/v1/nothing").json()["error"]["message"] == "Not Found"
    assert httpx.get(f"{server.url}/v1/completions").status_code == 405
    large = httpx.post(f"{server.url}/v1/completions", content=b" " * (17 << 20))
    assert large.status_code == 413 and "bytes" in large.json()["error"]["message"]

    def parts() -> Any:
        for _ in range(17):
            yield b" " * (1 << 20)

    assert httpx.post(f"{server.url}/v1/completions", content=parts()).status_code == 413
