"""Add up what the choices of one answer used."""

from __future__ import annotations

from collections.abc import Sequence

from tokenpipe.types import RequestOutput, Usage


class Tally:
    """Each prompt counts once, whatever `n` is; what was generated, as often as it was."""

    def __init__(self, prompts: Sequence[Sequence[int]]) -> None:
        self._prompt_tokens = sum(len(prompt) for prompt in prompts)
        self._cached = [0] * len(prompts)
        self._completion = 0
        self._reasoning: int | None = None

    def add(self, job: int, output: RequestOutput) -> None:
        """Count an output of prompt `job`, if it is the last of its choice."""
        usage = output.usage
        if usage is None:
            return
        self._completion += usage.completion_tokens
        # Of several samples the first finds what was there; the others find what it left.
        if output.index == 0:
            self._cached[job] = usage.cached_tokens
        if usage.reasoning_tokens is not None:
            self._reasoning = (self._reasoning or 0) + usage.reasoning_tokens

    @property
    def usage(self) -> Usage:
        """All of it."""
        return Usage(self._prompt_tokens, self._completion, sum(self._cached), self._reasoning)
