"""The parts of a Pipeline and its step lanes that a scheduler and its loop use."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from tokenpipe.events import Event
from tokenpipe.types import ErrorCode, Request
from tokenpipe.wire import StepBind, StepPlan


class SchedulerCommands(Protocol):
    """The commands that a scheduler gives to the processor of a DP rank."""

    def bind(self, request: Request, slot: int) -> int: ...
    def step_bind(self, handle: int) -> StepBind: ...
    def preempt(self, handle: int) -> None: ...
    def abort(self, request: Request) -> None: ...


class SchedulerPipe(Protocol):
    """The part of a Pipeline that a scheduler uses."""

    def commands(self, dp_rank: int) -> AbstractContextManager[SchedulerCommands]: ...
    def reject(self, request: Request, error: str, code: ErrorCode) -> None: ...


class PlanSender(Protocol):
    """The part of a step lane that a scheduler uses."""

    def send(self, plan: StepPlan) -> None: ...


class EventSource(Protocol):
    """The part of a Pipeline that an engine's loop uses."""

    def wait(self, timeout_s: float) -> bool: ...
    def poll(self) -> list[Event]: ...


class StepLaneEnd(Protocol):
    """The part of a step lane that an engine's loop uses."""

    @property
    def unread(self) -> int: ...
    def end(self) -> None: ...
