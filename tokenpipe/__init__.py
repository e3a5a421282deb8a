"""Carry sampled tokens from the processes that compute them to those that serve them.

An engine makes a `Pipeline`, its workers a `Publisher` each, its API servers an `AsyncClient` or a
`Client`. Importing this imports no framework.
"""

from tokenpipe.client import AsyncClient, Client
from tokenpipe.errors import TokenpipeError
from tokenpipe.pipeline import Pipeline
from tokenpipe.runners import Publisher, StepLane, StepLogprobs
from tokenpipe.topology import Topology
from tokenpipe.types import (
    Aborted,
    AbortRequested,
    ClientLost,
    Event,
    Finished,
    FinishReason,
    Mismatch,
    PrefillDone,
    ProcessorLost,
    ProcessorUp,
    RankLost,
    RankUp,
    Released,
    Request,
    RequestOutput,
    Rescheduled,
    RescheduleReason,
    RowStatus,
    SamplingParams,
    Submitted,
    TokenLogprobs,
    Usage,
)
from tokenpipe.wire import StepBind, StepPlan

__all__ = [
    "AbortRequested",
    "Aborted",
    "AsyncClient",
    "Client",
    "ClientLost",
    "Event",
    "FinishReason",
    "Finished",
    "Mismatch",
    "Pipeline",
    "PrefillDone",
    "ProcessorLost",
    "ProcessorUp",
    "Publisher",
    "RankLost",
    "RankUp",
    "Released",
    "Request",
    "RequestOutput",
    "RescheduleReason",
    "Rescheduled",
    "RowStatus",
    "SamplingParams",
    "StepBind",
    "StepLane",
    "StepLogprobs",
    "StepPlan",
    "Submitted",
    "TokenLogprobs",
    "TokenpipeError",
    "Topology",
    "Usage",
]
