"""A row: what a model is told of a request, and how much is left of it."""

from __future__ import annotations

from tokenpipe.runners import Row, Sampled
from tokenpipe.types import SamplingParams, make_handle
from tokenpipe.wire import StepBind

PARAMS = SamplingParams(max_tokens=7)


def test_a_row_is_made_of_its_binding() -> None:
    handle = make_handle(2, 5, 9)
    bind = StepBind(handle, 77, 2, (1, 2, 3), (4, 5), 6, b"x", PARAMS)
    row = Row.of(bind)
    assert (row.handle, row.key, row.slot) == (handle, 77, 5)
    assert (row.prompt_token_ids, row.output_token_ids) == ((1, 2, 3), (4, 5))
    assert row.params is PARAMS and (row.max_tokens, row.extra) == (6, b"x")
    assert (row.produced, row.failed, row.entered, row.state) == (0, False, False, None)
    assert Row.of(StepBind(handle, 77, 0, params=PARAMS)).max_tokens == 7


def test_what_is_left_counts_what_it_had_and_what_it_made() -> None:
    row = Row(1, 1, (1, 2, 3), (4, 5), PARAMS, 7)
    assert (row.length, row.left) == (5, 5)
    row.produced = 4
    assert (row.length, row.left) == (9, 1)
    row.failed = True
    assert (row.length, row.left) == (9, 0)


def test_rows_are_told_apart_by_identity() -> None:
    one, other = Row(1, 1, (), (), PARAMS, 7), Row(1, 1, (), (), PARAMS, 7)
    assert one != other and len({one, other}) == 2


def test_a_model_need_not_say_more_than_its_tokens() -> None:
    assert Sampled([1, 2]) == ([1, 2], None, None, None)
