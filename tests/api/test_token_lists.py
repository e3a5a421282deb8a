"""Prompts of each form, and the first wrong entry of a long list."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import PydanticCustomError

from tokenpipe.api.token_lists import MAX_STOP_IDS, prompts_of, stop_ids_of


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("x", ["x"]),
        ("", [""]),
        (["x", ""], ["x", ""]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        ([(1 << 31) - 1, 0], [[(1 << 31) - 1, 0]]),
    ],
)
def test_each_form_is_a_list_of_prompts(given: Any, expected: Any) -> None:
    found = prompts_of(given)
    assert [prompt if isinstance(prompt, str) else list(prompt) for prompt in found] == expected


@pytest.mark.case("F30")
@pytest.mark.parametrize(
    "given",
    [
        *(None, 5, {}, [], [[]], [[1], []], [None], [True], [1, "a"], ["a", 1], [[1], "a"]),
        *([["a"]], [-1], [1, -1], [1 << 31], [1.5], [[1], [1 << 31]], [[[1]]]),
    ],
)
def test_what_is_no_prompt_is_refused(given: Any) -> None:
    with pytest.raises(PydanticCustomError, match="must"):
        prompts_of(given)


def test_stop_ids() -> None:
    assert list(stop_ids_of([1, 2])) == [1, 2] and list(stop_ids_of([])) == []
    assert len(stop_ids_of([1] * MAX_STOP_IDS)) == MAX_STOP_IDS
    for given in ([1] * (MAX_STOP_IDS + 1), [-1], [1 << 31], "1", 1, ["1"]):
        with pytest.raises(PydanticCustomError, match="at most 65536 token ids"):
            stop_ids_of(given)
