"""A served engine: `python -m tokenpipe serve --engine examples.parrot:Parrot`.

It says each prompt again and again. In real life `step` is a forward of a model.
"""

from collections.abc import Iterator
from itertools import cycle, islice

from tokenpipe import StepBind
from tokenpipe.worker import RankPlace, StepRows


class Parrot:
    def __init__(self, place: RankPlace) -> None:
        self.running: dict[int, Iterator[int]] = {}  # handle to tokens still to say

    def admit(self, binding: StepBind) -> None:  # goes on behind what it has said before
        prompt = cycle(binding.prompt_token_ids)
        self.running[binding.handle] = islice(prompt, binding.output_tokens, None)

    def step(self) -> StepRows:
        return StepRows(list(self.running), [next(tokens) for tokens in self.running.values()])

    def free(self, handle: int) -> None:
        del self.running[handle]
