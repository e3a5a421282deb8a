"""An output has the fields of its extras, whether it has extras or not."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from tokenpipe.types import FinishReason, OutputExtras, RequestOutput, TokenLogprobs

LOGPROBS = TokenLogprobs((5, 7), (-0.5, None), 1)
NAMES = [field.name for field in fields(OutputExtras)]


def test_an_output_reads_its_extras() -> None:
    extras = OutputExtras(
        prompt_logprobs=[None, LOGPROBS],
        pooled=np.array([1.5], np.float32),
        sampling_masks=[None],
        draft_token_ids=[7],
        draft_logprobs=[LOGPROBS],
        custom=[(0, b"x")],
    )
    output = RequestOutput("r", 0, 0, [5], extras=extras)
    for name in NAMES:
        assert getattr(output, name) is getattr(extras, name) is not None


def test_an_output_without_extras_has_none_of_their_fields() -> None:
    output = RequestOutput("r", 0, 0, [5])
    assert [getattr(output, name) for name in NAMES] == [None] * len(NAMES)


def test_an_output_with_a_finish_reason_is_the_last() -> None:
    assert not RequestOutput("r", 0, 0, [5]).finished
    assert RequestOutput("r", 0, 1, [], FinishReason.LENGTH).finished
