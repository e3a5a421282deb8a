"""A synthetic engine that also gives prompt logprobs, all of a prompt in its first row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tokenpipe import PromptLogprobs, RowExtras, StepBind
from tokenpipe.worker import RankPlace, StepRows, SyntheticEngine


class Prompted(SyntheticEngine):
    def __init__(self, place: RankPlace, **options: Any) -> None:
        super().__init__(place, **options)
        self._prompts: dict[int, PromptLogprobs] = {}

    def admit(self, binding: StepBind) -> None:
        super().admit(binding)
        if (k := binding.params.prompt_logprobs) is not None:
            own = np.array(binding.prompt_token_ids[1:], np.int32)
            ids = np.column_stack([own, *(own + nth for nth in range(k))])
            values = np.full(ids.shape, -1.5, np.float32)
            made = PromptLogprobs(1, ids, values, np.ones(len(own), np.int32))
            self._prompts[binding.handle] = made

    def step(self) -> StepRows | None:
        rows = super().step()
        if rows is None or not self._prompts:
            return rows
        extras = {
            i: RowExtras(self._prompts.pop(int(handle)))
            for i, handle in enumerate(rows.handles)
            if int(handle) in self._prompts
        }
        return replace(rows, extras=extras)
