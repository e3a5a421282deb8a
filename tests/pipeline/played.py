"""An executor whose rows follow from the prompt: tokens, logprobs and extras, the same in each run.

It notes each request that it admits, so a second prefill is seen.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.postprocess.vocab import real
from tokenpipe import PromptLogprobs, RowExtras, StepBind, StepLogprobs
from tokenpipe.worker import RankPlace, StepRows

WORDS = sorted(real("gpt2_style").words.values())[300:1300]


def token(prompt: int, at: int) -> int:
    """Return a word that follows from the prompt's first id and the token's index."""
    return WORDS[((prompt + 1) * 2654435761 + (at + 1) * 40503) // 8 % len(WORDS)]


class Played:
    """Give each request a token a step, with logprobs where it wants them, and extras."""

    def __init__(self, place: RankPlace, admitted: str, rate: float = 200.0) -> None:
        self._admitted = Path(admitted)
        self._rank = place.dp_rank
        self._period_s = 1 / rate
        self._rows: dict[int, tuple[StepBind, int]] = {}

    def admit(self, binding: StepBind) -> None:
        self._rows[binding.handle] = binding, binding.output_tokens
        with self._admitted.open("a") as file:
            file.write(f"{binding.prompt_token_ids[0]} {binding.output_tokens} {self._rank}\n")

    def free(self, handle: int) -> None:
        del self._rows[handle]

    def step(self) -> StepRows | None:
        time.sleep(self._period_s)
        if not self._rows:
            return None
        tokens, ks, ids, values = [], [], [], []
        extras: dict[int, RowExtras] = {}
        for row, (handle, (binding, at)) in enumerate(self._rows.items()):
            prompt, k = binding.prompt_token_ids[0], binding.params.logprobs
            tokens.append(token(prompt, at))
            ks.append(-1 if k is None else k)
            if k is not None:
                ids += [tokens[-1], *range(at % 100, at % 100 + k)]
                values += [-at / 8 - i for i in range(k + 1)]
            if binding.params.prompt_logprobs is not None or at % 7 == 3:
                extras[row] = self._extras(binding, at)
            self._rows[handle] = binding, at + 1
        logprobs: Any = None
        if ids:
            ranks = np.ones(sum(k >= 0 for k in ks), np.int32)
            logprobs = StepLogprobs(
                np.array(ids, np.int32), np.array(values, np.float32), ranks, np.array(ks, np.int32)
            )
        handles = np.fromiter(self._rows, np.int64, len(self._rows))
        return StepRows(handles, np.array(tokens, np.int32), None, logprobs, extras=extras)

    def _extras(self, binding: StepBind, at: int) -> RowExtras:
        prompt: PromptLogprobs | None = None
        if at == 0 and binding.params.prompt_logprobs is not None:
            own = np.array(binding.prompt_token_ids[1:])[:, None]
            prompt = PromptLogprobs(1, own, np.full(own.shape, -2.0, np.float32), own[:, 0] * 0 + 1)
        return RowExtras(
            prompt, cached_tokens=3, reasoning_tokens=at // 2, custom=f"<{at}>".encode()
        )
