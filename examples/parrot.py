"""Repeat each prompt behind HTTP: `python -m tokenpipe serve --engine examples.parrot:Parrot`."""

from collections.abc import Iterator
from itertools import cycle, islice

from tokenpipe import StepBind
from tokenpipe.worker import RankPlace, StepRows


class Parrot:
    def __init__(self, place: RankPlace) -> None:
        self.running: dict[int, Iterator[int]] = {}  # handle to the tokens that are left

    def admit(self, binding: StepBind) -> None:  # continues after the tokens that it already has
        prompt = cycle(binding.prompt_token_ids)
        self.running[binding.handle] = islice(prompt, binding.output_tokens, None)

    def step(self) -> StepRows:  # in production a forward pass of a model
        return StepRows(list(self.running), [next(tokens) for tokens in self.running.values()])

    def free(self, handle: int) -> None:
        del self.running[handle]
