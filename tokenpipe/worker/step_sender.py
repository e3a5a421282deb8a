"""Publish a step of a worker's loop, and wait while the lane is full."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tokenpipe.errors import LaneError, LaneFull, LaneLost
from tokenpipe.logs import RateLimit
from tokenpipe.notify import Notifier

from .executor import StepRows
from .protocols import Publishes

FULL_WAIT_S = 0.01  # the longest wait between two attempts at a full lane
I64 = NDArray[np.int64]
_log = logging.getLogger("tokenpipe.worker")


class StepSender:
    """Send the frames of a rank. Set `stopped` when nobody waits for a full lane any more."""

    def __init__(
        self,
        pub: Publishes,
        notifier: Notifier,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pub = pub
        self._notifier = notifier
        self._limit = RateLimit(1.0, clock)
        self.stopped = False

    def send(self, step: int, rows: StepRows, drained: I64 | None) -> bool:
        """Publish a frame. Waits while the lane is full. Returns False if the processor died."""
        try:
            self._publish(step, rows, drained)
        except LaneError as error:
            return self.retry(step, rows, drained, error)
        return True

    def retry(self, step: int, rows: StepRows, drained: I64 | None, error: LaneError) -> bool:
        """Go on after an attempt that raised `error`, as `send` does.

        Raises the error if another attempt cannot help: FrameTooLarge, LaneClosed.
        """
        while isinstance(error, LaneFull) and not self.stopped:
            said = f"{error}; step {step} waits until the lane takes it"
            self._limit.log(_log, logging.WARNING, "full", said)
            self._notifier.watchdog()
            self._pub.wait(FULL_WAIT_S)
            try:
                self._publish(step, rows, drained)
            except LaneError as again:
                error = again
            else:
                return True
        if isinstance(error, LaneLost):
            _log.warning("%s; step %d and the batch are dropped", error, step)
            return False
        if isinstance(error, LaneFull):  # stopped
            return True
        raise error

    def _publish(self, step: int, rows: StepRows, drained: I64 | None) -> None:
        self._pub.publish(
            step,
            rows.handles,
            rows.tokens,
            rows.counts,
            rows.status,
            rows.logprobs,
            drained,
            extras=rows.extras,
        )
