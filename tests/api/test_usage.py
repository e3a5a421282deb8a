"""The usage of a response is the sum of its choices, and each prompt counts once."""

from __future__ import annotations

from tokenpipe.api.usage import UsageCounter
from tokenpipe.types import RequestOutput, Usage


def last(
    index: int, completion: int, cached: int = 0, reasoning: int | None = None
) -> RequestOutput:
    usage = Usage(99, completion, cached, reasoning)
    return RequestOutput("r", index, 0, [], usage=usage)


def test_a_prompt_counts_once_however_many_samples_it_has() -> None:
    counter = UsageCounter([[1, 2, 3], [4]])
    for job in (0, 1):
        for index in (0, 1):
            counter.add(job, last(index, completion=5))
    assert counter.usage == Usage(4, 20)


def test_only_the_last_output_of_a_choice_counts() -> None:
    counter = UsageCounter([[1]])
    counter.add(0, RequestOutput("r", 0, 0, [5, 6]))
    assert counter.usage == Usage(1, 0)
    counter.add(0, last(0, 2))
    assert counter.usage == Usage(1, 2)


def test_what_a_cache_had_is_said_by_the_first_sample_of_each_prompt() -> None:
    counter = UsageCounter([[1, 2, 3], [4, 5]])
    counter.add(0, last(1, 1, cached=3))  # what the first sample left there
    counter.add(0, last(0, 1, cached=1))
    counter.add(1, last(0, 1, cached=2))
    assert counter.usage.cached_tokens == 3


def test_reasoning_is_the_sum_of_those_that_said_it_and_none_where_nobody_did() -> None:
    counter = UsageCounter([[1]])
    counter.add(0, last(0, 9))
    assert counter.usage.reasoning_tokens is None
    counter.add(0, last(1, 9, reasoning=0))
    assert counter.usage.reasoning_tokens == 0
    counter.add(0, last(2, 9, reasoning=4))
    assert counter.usage == Usage(1, 27, 0, 4)
