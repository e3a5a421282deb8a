"""What a scheduler asks of pipeline and workers; `Pipeline` and `StepLane` have it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from tokenpipe.types import Request
from tokenpipe.wire import StepBind, StepPlan


class Commands(Protocol):
    """What a step may order from the processor of its rank."""

    def bind(self, request: Request, slot: int) -> int: ...
    def step_bind(self, handle: int) -> StepBind: ...
    def preempt(self, handle: int) -> None: ...
    def abort(self, request: Request) -> None: ...


class Engine(Protocol):
    """The part of Pipeline that a scheduler uses."""

    def step(self, dp_rank: int) -> AbstractContextManager[Commands]: ...
    def reject(self, request: Request, error: str) -> None: ...


class Plans(Protocol):
    """The engine's end of a StepLane."""

    def send(self, plan: StepPlan) -> None: ...
