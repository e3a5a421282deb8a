"""Which parameters a request may have, and how wrong ones are refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from tokenpipe._core import MAX_STOP_BYTES
from tokenpipe.errors import FieldError
from tokenpipe.types import SamplingParams


@pytest.mark.parametrize("ids", [[2, 3], (2, 3), range(2, 4), np.array([2, 3]), iter((2, 3))])
def test_stop_token_ids_become_a_tuple_of_ints(ids: Any) -> None:
    params = SamplingParams(stop_token_ids=ids)
    assert params == SamplingParams(stop_token_ids=(2, 3)) and hash(params)
    assert [type(token) for token in params.stop_token_ids] == [int, int]


@pytest.mark.parametrize("texts", [["a", "b"], ("a", "b"), iter("ab")])
def test_stops_become_a_tuple(texts: Any) -> None:
    params = SamplingParams(stop=texts)
    assert params.stop == ("a", "b") and hash(params)


def test_nothing_is_an_empty_tuple() -> None:
    params = SamplingParams(stop=[], stop_token_ids=[])
    assert params == SamplingParams() and params.stop == () and params.stop_token_ids == ()


@pytest.mark.case("F27")
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"temperature": -1}, "temperature: must be a number, at least 0, not -1"),
        ({"temperature": "x"}, "temperature: must be a number, not 'x'"),
        ({"temperature": float("nan")}, "temperature: .*nan"),
        ({"temperature": float("inf")}, "temperature: .*inf"),
        ({"temperature": 10**400}, "temperature: must be a number"),
        ({"top_p": 2}, "top_p: must be a number, above 0 and at most 1, not 2"),
        ({"top_p": 0}, "top_p: .*not 0"),
        ({"min_p": 1.5}, "min_p: must be a number, at least 0 and at most 1, not 1.5"),
        ({"seed": 2**70}, "seed: must be None or at most 18446744073709551615"),
        ({"seed": "7"}, "seed: must be an integer, not '7'"),
        ({"max_tokens": None}, "max_tokens: must be an integer, not None"),
        ({"max_tokens": True}, "max_tokens: must be an integer, not True"),
        ({"max_tokens": 1 << 31}, "max_tokens: must be at most 2147483647"),
        ({"min_tokens": "a"}, "min_tokens: must be an integer"),
        ({"n": 1.5}, "n: must be an integer, not 1.5"),
        ({"top_k": -2}, "top_k: must be at least -1, not -2"),
        ({"logprobs": -1}, "logprobs: must be None or at least 0, not -1"),
        ({"stream_interval_ms": None}, "stream_interval_ms: must be an integer"),
    ],
)
def test_a_number_of_a_wrong_type_or_size_names_its_field(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(FieldError, match=why):
        SamplingParams(**wrong)


@pytest.mark.case("F27")
def test_numbers_of_numpy_become_pythons() -> None:
    params = SamplingParams(max_tokens=np.int64(7), temperature=np.float32(0.5), top_p=1)
    assert (params.max_tokens, params.temperature, params.top_p) == (7, 0.5, 1.0)
    assert [type(v) for v in (params.max_tokens, params.temperature, params.top_p)] == [
        int,
        float,
        float,
    ]


@pytest.mark.case("F08")
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"stop": "end"}, r"stop: must be a tuple of strings; write \(text,\) for one"),
        ({"stop": None}, "stop: must be a tuple of strings, not None"),
        ({"stop": ["a", 7]}, "stop: 7 is not a string"),
        ({"stop": [b"a"]}, "stop: b'a' is not a string"),
        ({"stop": [""]}, "stop: a stop string must not be empty"),
        ({"stop": ["x" * (MAX_STOP_BYTES + 1)]}, "stop: must have at most"),
        ({"stop_token_ids": "12"}, "stop_token_ids: must be token ids, not '12'"),
        ({"stop_token_ids": 5}, "stop_token_ids: must be token ids, not 5"),
        ({"stop_token_ids": None}, "stop_token_ids: must be token ids, not None"),
        ({"stop_token_ids": [1.0]}, r"stop_token_ids: must be token ids, not \[1.0\]"),
        ({"stop_token_ids": [-1]}, "stop_token_ids: -1 is not a token id"),
        ({"stop_token_ids": [1 << 31]}, "is not a token id"),
    ],
)
def test_wrong_stops_are_refused_by_name(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(FieldError, match=why) as caught:
        SamplingParams(**wrong)
    assert {caught.value.field} == set(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 0},
        {"max_tokens": 0},
        {"min_tokens": 17},
        {"logprobs": -1},
        {"prompt_logprobs": -1},
        {"stream_interval": 0},
        {"stream_interval_ms": -1},
    ],
)
def test_a_wrong_number_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))) as caught:
        SamplingParams(**wrong)
    error = caught.value
    assert isinstance(error, FieldError) and {error.field} == set(wrong)
    assert str(error) == f"{error.field}: {error.problem}"
    again = pickle.loads(pickle.dumps(error))
    assert (again.field, again.problem) == (error.field, error.problem)


@pytest.mark.case("F40")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", None),
        ("n", "2"),
        ("seed", 1.5),
        ("top_k", True),
        ("temperature", "x"),
        ("top_p", None),
        ("logprobs", [1]),
        ("min_p", False),
    ],
)
def test_a_value_of_another_type_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(FieldError, match=rf"^{field}: must be a") as caught:
        SamplingParams(**{field: value})
    assert caught.value.field == field and repr(value) in str(caught.value)
