"""Bodies as JSON: their values are counted before one is made, and a mistake names its field."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect

from tokenpipe.api.body_parser import SPARE_VALUES, BodyParser, values_at_most
from tokenpipe.api.problems import Problem
from tokenpipe.api.request_models import ChatCompletionRequest, CompletionRequest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a",[{:\\\n')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


class Call:
    """A request that has only a body."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    async def body(self) -> bytes:
        return self._raw


def parse(raw: bytes, model: Any = CompletionRequest, most: int = 100) -> Any:
    return asyncio.run(BodyParser(most).parse(Call(raw), model))[0]  # type: ignore[arg-type]


def refused(raw: bytes, **options: Any) -> Problem:
    with pytest.raises(Problem) as caught:
        parse(raw, **options)
    return caught.value


def count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


@pytest.mark.case("F05")
@given(JSON, st.booleans(), st.integers(0, 30))
def test_no_body_has_more_values_than_were_counted(value: Any, ascii: bool, enough: int) -> None:
    raw = json.dumps(value, ensure_ascii=ascii).encode(errors="surrogatepass")
    assert values_at_most(raw, enough) >= min(count(value), enough + 1)


@pytest.mark.case("F05")
def test_marks_within_texts_are_no_values() -> None:
    text = json.dumps({"prompt": '[[[,,,{{{\\",' * 100_000, "max_tokens": 3}).encode()
    assert parse(text).max_tokens == 3
    many = b'{"prompt":"x","mystery":[%s1]}' % (b"1," * (SPARE_VALUES + 100))
    problem = refused(many)
    assert problem.status == 413 and "values" in problem.message
    assert refused(b'{"prompt":[' + b'"",' * (SPARE_VALUES + 100) + b'""]}').status == 413


@pytest.mark.case("F36")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "a\ud800"}, "prompt"),
        ({"prompt": ["a", "\udc00"]}, "prompt"),
        ({"prompt": "a", "stop": ["\ud83d"]}, "stop"),
        ({"prompt": "a", "request_id": "\ud83d"}, "request_id"),
        ({"prompt": "a", "model": "\ud83d"}, "model"),
        ({"prompt": "a", "lora": {"deep": [{"\ud83d": 1}]}}, "lora"),
        ({"prompt": "a", "\ud83d": 1}, "\\ud83d"),
        ({"messages": [{"role": "user", "content": "\ud83d"}]}, "messages"),
        ({"messages": [{"role": "user", "name": "\ud83d"}]}, "messages"),
    ],
)
def test_half_a_surrogate_pair_is_refused_by_field(body: Any, param: str) -> None:
    model = ChatCompletionRequest if "messages" in body else CompletionRequest
    problem = refused(json.dumps(body).encode(), model=model)
    assert (problem.status, problem.param) == (400, param)
    json.dumps(problem.body, ensure_ascii=False).encode()


def test_a_caller_that_leaves_within_its_body_is_no_failure() -> None:
    class Leaver(Call):
        async def body(self) -> bytes:
            raise ClientDisconnect

    with pytest.raises(Problem, match="left"):
        asyncio.run(BodyParser(1).parse(Leaver(b""), CompletionRequest))  # type: ignore[arg-type]


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert parse(b'{"prompt": "\\ud83d\\ude42 \\\\ud83d"}').prompt == ["🙂 \\ud83d"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "the body is not JSON: Expecting value"),
        (b"{", "the body is not JSON"),
        (b'"\xff"', "the body is not JSON: 'utf-8'"),
        (b"[" * 100_000, "the body is nested too deeply"),
        (b"5", "body: Input should be a valid dictionary"),
        (b'{"prompt": "x", "n": {"a": [%s1]}}' % (b"1," * 60_000), "n: Input should be a valid"),
        (b'{"prompt": "x", "n": 9%s}' % (b"9" * 5000), "the body is not JSON: Exceeds the limit"),
    ],
)
def test_what_is_no_body_is_refused_in_a_few_words(raw: bytes, said: str) -> None:
    problem = refused(raw, most=200_000)
    assert problem.status == 400 and problem.message.startswith(said), problem.message
    assert len(problem.message) < 300
