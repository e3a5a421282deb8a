"""A step lane and a publisher for tests of a worker's loop."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from tokenpipe.errors import LaneError
from tokenpipe.extras import RowExtras
from tokenpipe.wire import StepBind, StepPlan


class FakeLane:
    """Gives a list of plans to each call of `recv`, and ends after the last one."""

    def __init__(self, *plans: list[StepPlan]) -> None:
        self.plans = list(plans)
        self.waits: list[float] = []
        self.ended = False

    def recv(self, timeout_s: float) -> list[StepPlan]:
        self.waits.append(timeout_s)
        self.ended = not self.plans
        return self.plans.pop(0) if self.plans else []


class Frame(NamedTuple):
    """What one call of `publish` was given."""

    step: int
    handles: list[int]
    tokens: list[int]
    drained: list[int]
    status: list[int]
    extras: dict[int, RowExtras]


class FakePublisher:
    """Keeps what is published. Each error of `errors` is raised by one call, None by none."""

    def __init__(self, *errors: LaneError | None) -> None:
        self.errors = deque(errors)
        self.frames: list[Frame] = []
        self.log: list[str] = []
        self.failures: list[str] = []
        self.poll_within_s = 0.1

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
        extras: Any = None,
    ) -> None:
        error = self.errors.popleft() if self.errors else None
        self.log.append(f"publish {step}")
        if error is not None:
            raise error
        self.frames.append(
            Frame(
                step,
                np.asarray(handles).tolist(),
                np.asarray(tokens).tolist(),
                [] if drained is None else np.asarray(drained).tolist(),
                [] if status is None else np.asarray(status).tolist(),
                extras or {},
            )
        )

    def poll(self) -> None:
        self.log.append("poll")

    def wait(self, timeout_s: float) -> None:
        assert 0 < timeout_s < 0.1
        self.log.append("wait")

    def fail(self, error: str | BaseException) -> None:
        self.failures.append(str(error))


def bind(handle: int, key: int = 1) -> StepBind:
    return StepBind(handle, key, 0)
