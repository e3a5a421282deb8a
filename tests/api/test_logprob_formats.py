"""Logprobs in the forms of both endpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.running import Running
from tokenpipe.api.logprob_formats import (
    ENTRIES_AT_ONCE,
    chat_logprobs,
    completion_logprobs,
    finite,
    json_list,
    prompt_logprobs,
)
from tokenpipe.api.token_names import TokenNames
from tokenpipe.types import TokenLogprobs

ENTRIES = [
    TokenLogprobs((5,), (-1.0,), 3),
    TokenLogprobs((6, 7, 6), (-1.5, -0.5, -1.5), 2),
    TokenLogprobs((8, 7, 6), (-9.0, -0.5, -1.5), 40),
]


def label(token: int) -> tuple[str, bytes]:
    return f" {token}", f" {token}".encode()


def read(parts: Iterator[str]) -> Any:
    return json.loads("".join(parts), parse_constant=pytest.fail)


@pytest.mark.case("F30")
def test_the_token_of_the_output_is_always_among_the_top() -> None:
    assert read(completion_logprobs(ENTRIES, TokenNames(label), True)) == {
        "tokens": [" 5", " 6", " 8"],
        "token_logprobs": [-1.0, -1.5, -9.0],
        "top_logprobs": [
            {" 5": -1.0},  # logprobs: 0
            {" 7": -0.5, " 6": -1.5},
            {" 7": -0.5, " 6": -1.5, " 8": -9.0},  # k and the token itself, as OpenAI
        ],
        "text_offset": [0, 2, 4],
    }


@pytest.mark.case("F30")
def test_a_chat_has_k_alternatives() -> None:
    content = read(chat_logprobs(ENTRIES, TokenNames(label), True))["content"]
    assert [entry["token"] for entry in content] == [" 5", " 6", " 8"]
    assert [[top["token"] for top in entry["top_logprobs"]] for entry in content] == [
        [],
        [" 7", " 6"],
        [" 7", " 6"],
    ]
    assert content[0]["bytes"] == list(b" 5") and content[1]["top_logprobs"][0]["logprob"] == -0.5


def test_a_list_of_any_size_is_made_when_it_is_due() -> None:
    for count in (0, 1, ENTRIES_AT_ONCE, 5 * ENTRIES_AT_ONCE + 1):
        assert read(json_list(range(count))) == list(range(count))
    made: list[int] = []
    parts = json_list(made.append(i) or i for i in range(1000))  # type: ignore[func-returns-value]
    next(parts)
    assert len(made) == ENTRIES_AT_ONCE


@pytest.mark.case("B64")
def test_log_probabilities_that_json_cannot_say() -> None:
    assert finite(None) is None and finite(float("nan")) is None
    assert finite(float("-inf")) == -9999.0 and finite(float("inf")) == 0.0
    assert finite(-1.5) == -1.5 and finite(0.25) == 0.25


def test_prompt_logprobs_by_id() -> None:
    assert prompt_logprobs(None, label) is None
    assert prompt_logprobs(ENTRIES[1], label) == {
        "6": {"logprob": -1.5, "rank": 2, "decoded_token": " 6"},
        "7": {"logprob": -0.5, "rank": 1, "decoded_token": " 7"},
    }


@pytest.mark.case("F30")
@pytest.mark.parametrize("k", [0, 2])
def test_offsets_of_a_stream_are_those_of_the_whole_answer(server: Running, k: int) -> None:
    body: dict[str, Any] = {"prompt": [1], "max_tokens": 6, "seed": 1, "logprobs": k, "n": 2}
    whole = {c["index"]: c for c in server.post("/v1/completions", body).json()["choices"]}
    answer = server.post("/v1/completions", {**body, "stream": True}).text
    found: dict[int, dict[str, list[Any]]] = {0: {}, 1: {}}
    for line in answer.split("\n\n")[:-2]:
        (choice,) = json.loads(line.removeprefix("data: "))["choices"]
        for name, values in choice["logprobs"].items():
            found[choice["index"]].setdefault(name, []).extend(values)
    for index, choice in whole.items():
        assert found[index] == choice["logprobs"]
        text, logprobs = choice["text"], choice["logprobs"]
        assert "".join(logprobs["tokens"]) == text
        for name, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
            assert text[offset:].startswith(name)
        # The synthetic engine never has its own token among the top k.
        assert [len(top) for top in logprobs["top_logprobs"]] == [1 + k] * 6


@pytest.mark.case("F30")
def test_each_chunk_has_the_usage_so_far_where_asked(server: Running) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    for path, more in (
        ("completions", {"prompt": [1, 2]}),
        ("chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ):
        body = {**more, "max_tokens": 5, "stream": True, "stream_options": options}
        text = server.post(f"/v1/{path}", body).text
        lines = [line.removeprefix("data: ") for line in text.split("\n\n")[:-2]]
        counts = [json.loads(line)["usage"]["completion_tokens"] for line in lines]
        assert counts == sorted(counts) and counts[-2:] == [5, 5]
        assert json.loads(lines[0])["usage"]["prompt_tokens"] > 0
