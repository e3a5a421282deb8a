"""An engine whose prompts say how many tokens they get; then it holds them until they are freed."""

from __future__ import annotations

import time

from tokenpipe import StepBind
from tokenpipe.worker import RankPlace, StepRows

PERIOD_S = 0.005


class Holding:
    """Give a request as many tokens as the first id of its prompt says, one a step."""

    def __init__(self, place: RankPlace) -> None:
        self.left: dict[int, int] = {}

    def admit(self, binding: StepBind) -> None:
        self.left[binding.handle] = binding.prompt_token_ids[0] - binding.output_tokens

    def free(self, handle: int) -> None:
        del self.left[handle]

    def step(self) -> StepRows | None:
        time.sleep(PERIOD_S)
        moving = [handle for handle, left in self.left.items() if left > 0]
        for handle in moving:
            self.left[handle] -= 1
        return StepRows(moving, [7] * len(moving)) if moving else None
