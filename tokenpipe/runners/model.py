"""What a model runner asks of a model, and what it tells it. Knows no framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenpipe.extras import RowExtras
from tokenpipe.types import SamplingParams, request_fields_of, split_handle
from tokenpipe.wire import StepBind
from tokenpipe.worker import StepLogprobs

I64 = NDArray[np.int64]

GREEDY = SamplingParams(temperature=0.0, max_tokens=(1 << 31) - 1)


@dataclass(slots=True, eq=False)
class Row:
    """One request in a slot, from bind to free. A model may keep what it likes in `state`."""

    handle: int
    key: int  # of the request: the same in its next binding, whatever slot or rank that has
    prompt_token_ids: tuple[int, ...]
    output_token_ids: tuple[int, ...]  # what it had at bind
    params: SamplingParams
    max_tokens: int
    extra: bytes = b""
    slot: int = 0
    produced: int = 0  # tokens of this binding, of when its decode batch last changed
    failed: bool = False
    entered: bool = False  # its prefill succeeded: the model is told when it leaves
    state: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, bind: StepBind) -> Row:
        """Return the row of a new binding; its `max_tokens` is that of `params` where 0."""
        return cls(
            bind.handle,
            bind.key,
            tuple(bind.prompt_token_ids),
            tuple(bind.output_token_ids),
            bind.params,
            bind.max_tokens or bind.params.max_tokens,
            bind.extra,
            split_handle(bind.handle)[1],
        )

    @property
    def request_fields(self) -> dict[str, Any]:
        """What an API server put into `extra`; ValueError where that is no JSON object."""
        return request_fields_of(self.extra)

    @property
    def length(self) -> int:
        """Return how many tokens the sequence had then, prompt and output."""
        return len(self.prompt_token_ids) + len(self.output_token_ids) + self.produced

    @property
    def left(self) -> int:
        """Return how many tokens it may still get; none once it failed."""
        most = self.max_tokens - len(self.output_token_ids) - self.produced
        return 0 if self.failed else most


class Sampled(NamedTuple):
    """What a model that samples itself returns instead of logits. Arrays or tensors, any device.

    Args:
        tokens: int32 or int64 [rows]; or [rows, most] with `counts`, the row's own first.
        counts: how many tokens each row has [rows]; None is one each. 0 is a row still in prefill.
        logprobs: a `StepLogprobs` whose arrays begin with the shape of `tokens`.
        extras: a `RowExtras` for some rows, by their index in `rows`.
    """

    tokens: Any
    counts: Any = None
    logprobs: StepLogprobs | None = None
    extras: Mapping[int, RowExtras] | None = None


class Model(Protocol):
    """What an engine gives a runner.

    Both calls return logits [rows, vocabulary] for each row's next token, or a `Sampled`. Either
    may raise `RowsFailed` for some of its rows: those end with an error, and the call is repeated
    with the rest. Any other exception fails the rank.
    """

    def prefill(self, rows: Sequence[Row]) -> Any:
        """Run all tokens of rows that are new: `prompt_token_ids`, then `output_token_ids`."""

    def decode(self, rows: Sequence[Row], last: Any, lengths: I64 | None) -> Any:
        """Run one step of rows that are not new.

        `last` int64 [rows], on the device, has the token that the runner sampled for each;
        `lengths` int64 [rows], on the host, how many tokens each sequence has with it, so that it
        stands at position length - 1. Both None for a model that samples itself. `rows` is the
        same list object as in the step before where the same rows run.
        """

    def free(self, row: Row) -> None:
        """Forget a row: it ended, failed, was preempted or aborted; its slot may be used again.

        Called once for each row whose prefill succeeded.
        """
