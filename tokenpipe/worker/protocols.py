"""What a worker's loop needs of its lanes: the parts of StepLaneReader and Publisher it uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tokenpipe.extras import RowExtras
from tokenpipe.wire import StepPlan


class PlanLane(Protocol):
    """The worker's end of a StepLane."""

    @property
    def ended(self) -> bool:
        """Whether there will be no more plans."""
        ...

    def recv(self, timeout_s: float) -> list[StepPlan]:
        """Return the plans that came; waits for the first."""
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
        """How long `poll` may wait where nothing is published in between, in seconds."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait until the processor says something, at most `timeout_s`."""

    def fail(self, error: str | BaseException) -> None:
        """Say that this rank cannot go on."""
