"""Count the tokens of an answer that has several choices."""

from __future__ import annotations

from collections.abc import Sequence

from tokenpipe.types import RequestOutput, Usage


class UsageCounter:
    """Count the tokens of each prompt once, whatever `n` is, and those of each choice."""

    def __init__(self, prompts: Sequence[Sequence[int]]) -> None:
        self._prompt_tokens = sum(len(prompt) for prompt in prompts)
        self._cached = [0] * len(prompts)
        self._completion = 0
        self._reasoning: int | None = None

    def add(self, prompt: int, output: RequestOutput) -> None:
        """Count an output of the prompt with this index, if it is the last of its choice."""
        usage = output.usage
        if usage is None:
            return
        self._completion += usage.completion_tokens
        # The first sample found what was cached before the call; the others found what it cached.
        if output.index == 0:
            self._cached[prompt] = usage.cached_tokens
        if usage.reasoning_tokens is not None:
            self._reasoning = (self._reasoning or 0) + usage.reasoning_tokens

    @property
    def usage(self) -> Usage:
        """The tokens of all outputs so far."""
        return Usage(self._prompt_tokens, self._completion, sum(self._cached), self._reasoning)
