"""Chunks and answers are valid JSON in OpenAI's form, whatever an engine computed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tokenpipe.api.formats import ChatFormat, ChoiceBuffer, CompletionFormat, FormatOptions
from tokenpipe.api.text_codec import PlainTextCodec
from tokenpipe.types import FinishReason, RequestOutput, SamplingParams, TokenLogprobs, Usage

ODD = '"\\\n\u2028\x00 ü 漢 🙂'


def format_of(kind: Any, **options: Any) -> Any:
    return kind("r1", "m", PlainTextCodec(False), FormatOptions(**options))


def event(raw: bytes) -> Any:
    assert raw.startswith(b"data: ") and raw.endswith(b"\n\n") and raw.count(b"\n") == 2
    return json.loads(raw[6:], parse_constant=pytest.fail)


@pytest.mark.parametrize("kind", [CompletionFormat, ChatFormat])
def test_chunk_by_the_quick_way_is_that_by_the_slow_one(kind: Any) -> None:
    plain = RequestOutput("r1", 0, 0, [5])
    quick = event(format_of(kind).chunk(2, ODD, plain))
    slow = event(format_of(kind, with_ids=True).chunk(2, ODD, plain))
    assert slow["choices"][0].pop("token_ids") == [5]
    assert quick == slow
    said = quick["choices"][0]
    assert (said.get("text") or said["delta"]["content"]) == ODD and said["index"] == 2
    assert said["finish_reason"] is None and said["logprobs"] is None


@pytest.mark.case("F30")
def test_characters_are_not_escaped() -> None:
    sent = RequestOutput("r1", 0, 0, [5], FinishReason.STOP, "漢", usage=Usage(2, 4))
    chunk = format_of(CompletionFormat).chunk(0, "漢", sent)
    choice = ChoiceBuffer()
    choice.add("漢", sent)
    whole = "".join(format_of(ChatFormat).whole([choice], Usage(2, 4))).encode()
    assert chunk.count("漢".encode()) == whole.count("漢".encode()) == 2


def test_last_chunk_and_usage() -> None:
    made = format_of(CompletionFormat, with_usage=True)
    last = RequestOutput("r1", 0, 3, [7], FinishReason.STOP, 7, usage=Usage(2, 4))
    said = event(made.chunk(0, " 7", last))
    assert said["choices"][0]["finish_reason"] == "stop" and said["choices"][0]["stop_reason"] == 7
    assert said["usage"] is None
    assert event(made.usage(Usage(2, 4, 1, 3))) == {
        **said,
        "choices": [],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": 4,
            "total_tokens": 6,
            "prompt_tokens_details": {"cached_tokens": 1},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    }


def test_chat_opens_every_choice_with_its_role() -> None:
    events = format_of(ChatFormat).opening(2).decode().strip().split("\n\n")
    said = [json.loads(text.removeprefix("data: "))["choices"][0] for text in events]
    assert [(s["index"], s["delta"]["role"]) for s in said] == [(0, "assistant"), (1, "assistant")]
    assert format_of(CompletionFormat).opening(2) == b""


@pytest.mark.case("B64")
def test_log_probabilities_that_json_cannot_say() -> None:
    params = [SamplingParams(logprobs=2)]
    found = [TokenLogprobs((5, 6, 7), (None, float("-inf"), -0.5), 1)]
    output = RequestOutput("r1", 0, 0, [5], logprobs=found)
    said = event(format_of(CompletionFormat, params=params).chunk(0, " 5", output))["choices"][0][
        "logprobs"
    ]
    assert said["token_logprobs"] == [None]
    assert said["top_logprobs"] == [{" 6": -9999.0, " 7": -0.5, " 5": None}]
    chatted = format_of(ChatFormat, params=params).chunk(0, " 5", output)
    (chat,) = event(chatted)["choices"][0]["logprobs"]["content"]
    assert chat["logprob"] is None and [t["logprob"] for t in chat["top_logprobs"]] == [
        -9999.0,
        -0.5,
    ]


def test_whole_answer_adds_its_deltas_up() -> None:
    choice = ChoiceBuffer()
    choice.add("a", RequestOutput("r1", 0, 0, [1]))
    choice.add("b", RequestOutput("r1", 0, 1, [2], FinishReason.LENGTH))
    said = json.loads("".join(format_of(ChatFormat, with_ids=True).whole([choice], Usage(3, 2))))
    assert said["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "ab"},
        "logprobs": None,
        "finish_reason": "length",
        "stop_reason": None,
        "token_ids": [1, 2],
    }
    assert said["object"] == "chat.completion" and said["usage"]["total_tokens"] == 5


@pytest.mark.case("F30")
@pytest.mark.parametrize("kind", [CompletionFormat, ChatFormat])
def test_an_end_by_eos_has_no_stop_reason(kind: Any) -> None:
    last = RequestOutput("r1", 0, 0, [0], FinishReason.STOP, 0)
    choice = ChoiceBuffer()
    choice.add("", last)
    for eos, stops, expected in (([0], (), None), ([1], (), 0), ([0], (0,), 0)):
        params = [SamplingParams(stop_token_ids=stops)]
        made = format_of(kind, params=params, eos_token_ids=eos)
        whole = json.loads("".join(made.whole([choice], Usage(1, 1))))
        for said in (event(made.chunk(0, "", last)), whole):
            assert said["choices"][0]["stop_reason"] == expected
