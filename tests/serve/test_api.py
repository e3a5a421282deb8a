"""The API as the official client sees it, in both flavours."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import openai
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
            found.token_logprobs == [-0.5] * 3 and [len(t) for t in found.top_logprobs] == [2] * 3
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


PROMPT_IS = (
    "prompt: must be a text, a list of token ids (integers from 0 to 2147483647), or a list of "
    "either (got "
)
CONTENT_IS = (
    'messages.1.content: must be a text, or a list of parts {"type": "text", "text": ...} (got '
)


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


def test_health_and_ready(server: Running) -> None:
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    said = server.ready()
    assert said["ready"] and said["problems"] == {} and said["ranks_up"] == [0]


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
    assert server.post("/v1/abort", {"request_id": "mine"}).json() == {"aborted": 4}
    for thread in asking:
        thread.join(10)
    assert reasons.count("abort") == 4
    assert server.post("/v1/abort", {"request_id": "mine"}).json() == {"aborted": 0}
    assert server.post("/v1/abort", {}).json()["error"]["param"] == "request_id"


def send(server: Running, path: str, body: Any) -> socket.socket:
    """Send a call and read nothing."""
    host, port = server.url.removeprefix("http://").split(":")
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n"
    sock = socket.create_connection((host, int(port)), timeout=10)
    sock.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + raw)
    return sock


@pytest.mark.case("B40")
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("when", ["mid-stream", "whole", "queued"])
def test_who_leaves_frees_the_slot(server: Running, path: str, when: str) -> None:
    body: dict[str, Any] = {"max_tokens": 1_000_000, "stream": when != "whole"}
    if path.endswith("chat/completions"):
        body["messages"] = [{"role": "user", "content": "x"}]
    else:
        body["prompt"] = PROMPT
    count = 11 if when == "queued" else 3  # of 8 slots
    callers = [send(server, path, body) for _ in range(count)]
    full = {"running": min(count, 8), "waiting": max(0, count - 8)}
    assert eventually(lambda: full.items() <= server.ready().items()), server.ready()
    if when == "mid-stream":
        assert all(sock.recv(1) for sock in callers)
    for sock in callers:
        sock.close()
    assert eventually(server.idle, 2.0), server.ready()
    assert server.post("/v1/completions", {"prompt": PROMPT}).status_code == 200


@pytest.mark.case("B40")
def test_leaving_before_the_first_token(server: Running) -> None:
    """The connection is closed right behind the call: between dispatch and admission."""
    for _ in range(20):
        send(server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 1_000_000}).close()
    assert eventually(server.idle, 5.0), server.ready()


@pytest.mark.soak
def test_tensor_parallel_ranks_run_in_lockstep(tmp_path: Path, runtime_dir: Path) -> None:
    """Both TP ranks send, and what they send is the same, step for step."""
    keys: dict[str, Any] = {"tensor_parallel_size": 2, "data_parallel_size": 2}
    with Running(tmp_path, runtime_dir, tp_policy="verify", **keys) as server:
        body = {"prompt": [[1], [2], [3], [4]], "n": 2, "max_tokens": 60}
        answer = server.post("/v1/completions", body).json()
        assert answer["usage"]["completion_tokens"] == 8 * 60
        assert eventually(server.idle)
    assert "ranks differ" not in (tmp_path / "logs" / "engine-0.log").read_text()
