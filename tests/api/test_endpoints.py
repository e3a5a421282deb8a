"""The endpoints as the official client sees them, with one worker and with two."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from tests.conftest import eventually
from tests.serve.running import Running

PROMPT = [1, 2, 3]


def text_of(stream: Any) -> tuple[str, list[Any]]:
    chunks = list(stream)
    return "".join(c.choices[0].text for c in chunks if c.choices), chunks


def test_completion_is_the_same_streamed_and_whole(server: Running) -> None:
    with server.client() as client:
        asked: dict[str, Any] = {"model": "tokenpipe", "prompt": PROMPT, "max_tokens": 20}
        whole = client.completions.create(**asked, seed=7)
        options = {"include_usage": True}
        stream = client.completions.create(**asked, seed=7, stream=True, stream_options=options)  # type: ignore[call-overload]
        text, chunks = text_of(stream)
    assert whole.choices[0].text == text and len(text.split()) == 20
    assert whole.choices[0].finish_reason == "length"
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons[-1] == "length" and set(reasons[:-1]) <= {None}
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (3, 20)
    assert len({chunk.id for chunk in chunks}) == 1


def test_chat_is_the_same_streamed_and_whole(server: Running) -> None:
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    asked: dict[str, Any] = {"model": "tokenpipe", "messages": messages, "seed": 1}
    with server.client() as client:
        whole = client.chat.completions.create(**asked, max_completion_tokens=8)
        chunks = list(client.chat.completions.create(**asked, max_tokens=8, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == (
        whole.choices[0].message.content
    )
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"


def test_several_prompts_and_samples_keep_their_places(server: Running) -> None:
    with server.client() as client:
        prompts = [[1], [2], [3]]
        asked: dict[str, Any] = {"model": "tokenpipe", "seed": 3, "max_tokens": 6}
        whole = client.completions.create(prompt=prompts, n=2, **asked)
        alone = [client.completions.create(prompt=p, n=2, **asked) for p in prompts]
        streamed = ["" for _ in range(6)]
        for chunk in client.completions.create(prompt=prompts, n=2, stream=True, **asked):
            streamed[chunk.choices[0].index] += chunk.choices[0].text
    texts = [choice.text for choice in whole.choices]
    assert texts == [choice.text for one in alone for choice in one.choices] == streamed
    assert len(set(texts)) == 6 and [c.index for c in whole.choices] == list(range(6))
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (3, 36)


def test_logprobs_in_both_shapes(server: Running) -> None:
    with server.client() as client:
        one = client.completions.create(model="tokenpipe", prompt=PROMPT, logprobs=2, max_tokens=3)
        found = one.choices[0].logprobs
        assert found is not None and found.tokens is not None and found.top_logprobs is not None
        assert "".join(found.tokens) == one.choices[0].text
        assert (
            found.token_logprobs == [-0.5] * 3 and [len(t) for t in found.top_logprobs] == [3] * 3
        )
        messages: Any = [{"role": "user", "content": "x"}]
        chat = client.chat.completions.create(
            model="tokenpipe", messages=messages, logprobs=True, top_logprobs=1, max_tokens=3
        )
        logprobs = chat.choices[0].logprobs
        assert logprobs is not None and logprobs.content is not None
        assert "".join(e.token for e in logprobs.content) == chat.choices[0].message.content
        assert [len(entry.top_logprobs) for entry in logprobs.content] == [1] * 3


def test_token_ids_where_asked(server: Running) -> None:
    body = {"prompt": PROMPT, "max_tokens": 4, "return_token_ids": True, "seed": 1}
    (choice,) = server.post("/v1/completions", body).json()["choices"]
    assert "".join(f" {token}" for token in choice["token_ids"]) == choice["text"]


def test_stop_token_ends_it(server: Running) -> None:
    body: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 8, "return_token_ids": True, "seed": 1}
    (free,) = server.post("/v1/completions", body).json()["choices"]
    stop = free["token_ids"][3]
    (ended,) = server.post("/v1/completions", {**body, "stop_token_ids": [stop]}).json()["choices"]
    assert (ended["finish_reason"], ended["stop_reason"]) == ("stop", stop)
    assert ended["token_ids"] == free["token_ids"][:4]


def test_health_and_ready(server: Running) -> None:
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    said = server.ready()
    assert said["ready"] and said["problems"] == {} and said["ranks_up"] == [0]


@pytest.mark.case("F22")
def test_abort_by_id_reaches_whoever_serves_it(server: Running) -> None:
    reasons: list[Any] = []

    def ask() -> None:
        with server.client() as client:
            for chunk in client.completions.create(
                model="tokenpipe",
                prompt=PROMPT,
                max_tokens=100_000,
                stream=True,
                extra_body={"request_id": "mine"},
            ):
                assert chunk.id == "cmpl-mine"
                reasons.append(chunk.choices[0].finish_reason)

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    assert eventually(lambda: server.ready()["running"] == 4 and len(reasons) > 10)
    # the id as the answer shows it
    assert server.post("/v1/abort", {"request_id": "cmpl-mine"}).json() == {"aborted": 4}
    for thread in asking:
        thread.join(10)
    assert reasons.count("abort") == 4
    assert server.post("/v1/abort", {"request_id": "mine"}).json() == {"aborted": 0}
    assert server.post("/v1/abort", {}).json()["error"]["param"] == "request_id"


@pytest.mark.case("F22")
def test_an_id_in_a_header_is_never_shortened(server: Running) -> None:
    def ask(name: str) -> httpx.Response:
        body = {"model": "tokenpipe", "prompt": PROMPT, "max_tokens": 1}
        headers = {"x-request-id": name}
        return httpx.post(f"{server.url}/v1/completions", json=body, headers=headers)

    assert ask("n" * 512).json()["id"] == "cmpl-" + "n" * 512
    refused = ask("n" * 513)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "x-request-id"
