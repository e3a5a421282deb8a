"""The probe's tokens are known beforehand, and it tells what a runner must not do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokenpipe.runners import Row
from tokenpipe.runners.probe import ProbeModel
from tokenpipe.types import SamplingParams


def row(slot: int, prompt: tuple[int, ...], output: tuple[int, ...] = ()) -> Row:
    return Row(slot + 100, 1, prompt, output, SamplingParams(), 99, slot=slot)


@pytest.mark.usefixtures("paddle")
def test_the_highest_logit_is_the_token_that_must_come(paddle: Any) -> None:
    model = ProbeModel(vocabulary=64)
    rows = [row(0, (5, 6)), row(3, (7,), (8, 9))]
    got = [[int(t)] for t in model.prefill(rows).numpy().argmax(axis=-1)]
    for _ in range(4):
        last = paddle.to_tensor([tokens[-1] for tokens in got], dtype="int64")
        lengths = np.array([r.length + len(t) for r, t in zip(rows, got, strict=True)])
        for tokens, token in zip(
            got, model.decode(rows, last, lengths).numpy().argmax(-1), strict=True
        ):
            tokens.append(int(token))
    assert got == [model.expected((5, 6), 5), model.expected((7, 8, 9), 5)]


@pytest.mark.usefixtures("paddle")
def test_a_wrong_token_or_place_changes_all_that_comes_after(paddle: Any) -> None:
    model = ProbeModel(vocabulary=64)
    right = model.expected((5, 6), 9)
    assert all(a != b for a, b in zip(right, model.expected((5, 7), 9), strict=True))
    assert right[1:] != model.expected((5, 6, right[0] + 1), 8)
    assert right != model.expected((6,), 9)  # the same last token at another place


@pytest.mark.usefixtures("paddle")
def test_slots_are_entered_and_left_once() -> None:
    model = ProbeModel(vocabulary=64)
    mine = row(0, (5,))
    model.prefill([mine])
    with pytest.raises(RuntimeError, match="slot 0 still holds 100"):
        model.prefill([mine])
    other = Row(7, 1, (5,), (), SamplingParams(), 99, slot=0)
    with pytest.raises(RuntimeError, match="slot 0 does not hold 7"):
        model.decode([other], None, np.array([2]))
    with pytest.raises(RuntimeError, match="slot 1 did not hold 101"):
        model.free(row(1, (5,)))
    model.free(mine)
    assert model.slots == {}
