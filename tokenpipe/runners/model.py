"""The interface of a model, and of the rows that it gets. This needs no framework."""

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
    """One request in a slot, from bind to free. `state` is for the model's own use."""

    handle: int
    key: int  # of the request; a later binding in another slot or rank has the same
    prompt_token_ids: tuple[int, ...]
    output_token_ids: tuple[int, ...]  # that the request had when it was bound
    params: SamplingParams
    max_tokens: int
    extra: bytes = b""
    slot: int = 0
    produced: int = 0  # tokens of this binding, when its decode batch last changed
    failed: bool = False
    entered: bool = False  # its prefill succeeded, so `Model.free` is called for it
    state: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, bind: StepBind) -> Row:
        """Return the row of a new binding. `max_tokens` 0 takes that of `params`."""
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
        """The fields of the HTTP request in `extra`. ValueError if it is no JSON object."""
        return request_fields_of(self.extra)

    @property
    def length(self) -> int:
        """Return how many tokens the sequence had then: prompt and output."""
        return len(self.prompt_token_ids) + len(self.output_token_ids) + self.produced

    @property
    def left(self) -> int:
        """Return how many tokens the row may still get: none if it failed."""
        most = self.max_tokens - len(self.output_token_ids) - self.produced
        return 0 if self.failed else most


class Sampled(NamedTuple):
    """The tokens of a model that samples itself, as arrays or as tensors on any device.

    Args:
        tokens: int32 or int64 [rows]. Or [rows, most] with `counts`: the first ones are the row's.
        counts: tokens of each row [rows]. None: one each. A row that is still in prefill has 0.
        logprobs: a `StepLogprobs` whose arrays begin with the shape of `tokens`.
        extras: a `RowExtras` for some rows, by their index in `rows`.
    """

    tokens: Any
    counts: Any = None
    logprobs: StepLogprobs | None = None
    extras: Mapping[int, RowExtras] | None = None


class Model(Protocol):
    """The model of an engine. A model runner runs it.

    `prefill` and `decode` return logits [rows, vocabulary] for the next token of each row, or a
    `Sampled`. They may raise `RowsFailed` for some rows: these end with an error, and the call is
    repeated with the other rows. Any other exception fails the rank.
    """

    def prefill(self, rows: Sequence[Row]) -> Any:
        """Run all tokens of new rows: `prompt_token_ids`, then `output_token_ids`."""

    def decode(self, rows: Sequence[Row], last: Any, lengths: I64 | None) -> Any:
        """Run one step of rows that are not new.

        `last` int64 [rows] has the newest token of each row, on the device. `lengths` int64 [rows]
        has the tokens of each sequence with it, on the host: its position is length - 1. Both are
        None for a model that samples itself. `rows` is the same list object as in the step before
        if the same rows run.
        """

    def free(self, row: Row) -> None:
        """Forget a row: it ended, failed, or was preempted or aborted. Its slot may be used again.

        This is called once for each row whose prefill succeeded.
        """
