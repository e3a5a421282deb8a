"""What a scheduler asks of pipeline and workers; `Pipeline` and `StepLane` have it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from tokenpipe.types import ErrorCode, Request
from tokenpipe.wire import StepBind, StepPlan


class SchedulerCommands(Protocol):
    """What a step may order from the processor of its rank."""

    def bind(self, request: Request, slot: int) -> int: ...
    def step_bind(self, handle: int) -> StepBind: ...
    def preempt(self, handle: int) -> None: ...
    def abort(self, request: Request) -> None: ...


class SchedulerPipe(Protocol):
    """The part of Pipeline that a scheduler uses."""

    def step(self, dp_rank: int) -> AbstractContextManager[SchedulerCommands]: ...
    def reject(self, request: Request, error: str, code: ErrorCode) -> None: ...


class PlanSender(Protocol):
    """The engine's end of a StepLane."""

    def send(self, plan: StepPlan) -> None: ...
