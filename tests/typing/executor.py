"""A model for `serve --engine executor:make`: three methods, and a factory that knows its place."""

from typing import Any

import numpy as np
from typing_extensions import assert_type

import tokenpipe as tp
from tokenpipe.worker import Executor, RankPlace, StepRows


class Echo:
    """Says each prompt again."""

    request_fields = ("volume",)
    max_model_len = 4096

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.prompts: dict[int, tuple[int, ...]] = {}

    def admit(self, binding: tp.StepBind) -> None:
        """Take a request in."""
        assert_type(binding.request_fields, dict[str, Any])
        if not binding.prompt_token_ids:
            raise tp.FieldError("prompt", "must not be empty")
        self.prompts[binding.handle] = binding.prompt_token_ids

    def step(self) -> StepRows | None:
        """Run one step."""
        if not self.prompts:
            return None
        tokens = np.array([prompt[0] for prompt in self.prompts.values()], np.int32)
        return StepRows(np.array(list(self.prompts), np.int64), tokens)

    def free(self, handle: int) -> None:
        """Let a request go."""
        del self.prompts[handle]


def make(place: RankPlace, volume: int = 1) -> Executor:
    """Make the rank's executor."""
    assert_type(place.topology, tp.Topology)
    assert_type((place.dp_rank, place.tp_rank), tuple[int, int])
    return Echo(place.topology.vocab_size or 1000 * volume)


class Rows:
    """No executor: its step gives arrays."""

    def admit(self, binding: tp.StepBind) -> None:
        """Take a request in."""

    def step(self) -> list[int]:
        """Run one step."""
        return []

    def free(self, handle: int) -> None:
        """Let a request go."""


def wrong(place: RankPlace) -> list[Executor]:
    """What a checker must refuse."""
    StepRows([1])  # type: ignore[call-arg]
    StepRows([1], [2], extras=[tp.RowExtras()])  # type: ignore[arg-type]
    make(place.topology)  # type: ignore[arg-type]
    place.dp_rank = 1  # type: ignore[misc]
    return [Rows()]  # type: ignore[list-item]
