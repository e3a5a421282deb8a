"""The parts of StepLaneReader and Publisher that a worker's loop uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tokenpipe.extras import RowExtras
from tokenpipe.wire import StepPlan


class PlanLane(Protocol):
    """The worker's end of a StepLane."""

    @property
    def ended(self) -> bool:
        """Whether no more plans will come."""
        ...

    def recv(self, timeout_s: float) -> list[StepPlan]:
        """Return the plans that came. Waits for the first one, at most `timeout_s`."""
        ...


class Publishes(Protocol):
    """The part of `Publisher` that a worker's loop uses."""

    def publish(
        self,
        step: int,
        handles: Any,
        tokens: Any,
        counts: Any = None,
        status: Any = None,
        logprobs: Any = None,
        drained: Any = None,
        *,
        extras: Mapping[int, RowExtras] | None = None,
    ) -> None:
        """Send one step."""

    def poll(self) -> None:
        """Read acknowledgements."""

    @property
    def poll_within_s(self) -> float:
        """The seconds until the next `poll` is due, if nothing is published before."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait for a message of the processor, at most `timeout_s`."""

    def fail(self, error: str | BaseException) -> None:
        """Report that this rank failed."""
