"""Messages from the engine to a worker and from a worker to its processor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from tokenpipe.types import SamplingParams, request_fields_of

from .fields import U32, U64, Extra, Handle, TokenIds, Wide, Words, Yes
from .sampling_spec import PARAMS
from .schema import ArraySpec, map_spec

_DEFAULTS = SamplingParams()


@dataclass(frozen=True, slots=True)
class StepBind:
    """A new binding in a StepPlan."""

    handle: Handle
    key: U64
    output_tokens: U32  # tokens the request has at bind
    prompt_token_ids: TokenIds = ()
    output_token_ids: TokenIds = ()
    max_tokens: U32 = 0
    extra: Extra = b""
    params: Annotated[SamplingParams, PARAMS] = _DEFAULTS

    @property
    def request_fields(self) -> dict[str, Any]:
        """The fields that an API server put into `extra`. ValueError if it is no JSON object."""
        return request_fields_of(self.extra)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The changes of a rank's batch: new bindings, and handles to free.

    `reset` means that the rank was lost and all its handles are dead. The worker, which is alive,
    first drops its whole batch and publishes no drained rows for it.
    """

    number: U64
    binds: Annotated[tuple[StepBind, ...], ArraySpec(map_spec(StepBind))] = ()
    frees: Wide = ()  # handles; the worker answers each with a drained row
    steps: U32 = 0  # number of steps that a lockstep worker runs before it takes the next plan
    extra: Extra = b""
    reset: Yes = False


@dataclass(frozen=True, slots=True)
class RankFailed:
    """A worker cannot go on; `message` says why."""

    dp: U32
    tp: U32
    message: Words
