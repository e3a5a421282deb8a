"""Carry sampled tokens from the processes that compute them to those that serve them.

An engine makes a `Pipeline`, its workers a `Publisher` each, its API servers an `AsyncClient` or a
`Client`. Importing this imports no framework.
"""

from .client import AsyncClient, Client
from .errors import TokenpipeError
from .pipeline import Pipeline
from .runners import Publisher, StepLane, StepLogprobs
from .topology import Topology
from .types import (
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
from .wire import StepBind, StepPlan

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
