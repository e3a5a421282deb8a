"""Generate without tokenpipe, one prompt at a time, to compare the engine's output with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import paddle

from tokenpipe import SamplingParams
from tokenpipe.runners import Row

from .model import SmolLM2

GREEDY = SamplingParams(temperature=0.0, max_tokens=1 << 30)


class Plain(NamedTuple):
    """Greedy ids, and for each the distance between the best two logits."""

    ids: list[int]
    gaps: list[float]


def generate(model: SmolLM2, prompt: Sequence[int], tokens: int) -> Plain:
    """Return the next `tokens` ids of a prompt, in slot 0."""
    row = Row(1, 0, tuple(prompt), (), GREEDY, tokens)
    logits = model.prefill([row])
    plain = Plain([], [])
    for length in range(len(prompt) + 1, len(prompt) + tokens + 1):
        (best, second), (token, _) = (part[0].tolist() for part in paddle.topk(logits, 2))
        plain.ids.append(token)
        plain.gaps.append(best - second)
        logits = model.decode([row], paddle.to_tensor([token]), np.array([length]))
    return plain
