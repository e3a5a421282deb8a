"""Publish the steps of a worker's loop: number the frames, and wait while the lane is full."""

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
    """Send the frames of a rank, in order.

    `step` is the number of the newest frame. `muted`: all handles of the rank are dead, so nothing
    is sent. `stopped`: nobody waits for a full lane any more.
    """

    def __init__(
        self,
        pub: Publishes,
        notifier: Notifier,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pub = pub
        self._notifier = notifier
        self._limit = RateLimit(1.0, clock)
        self.step = 0
        self.muted = False
        self.stopped = False

    def send(self, rows: StepRows, drained: I64 | None = None) -> bool:
        """Publish one frame. Waits while the lane is full. Returns False if the processor died."""
        self.step += 1  # also if the frame is not sent, so that all TP ranks number theirs alike
        if self.muted:
            self._pub.poll()
            return True
        try:  # as `_publish`, but without its call: behind a forward pass the caches are cold
            self._pub.publish(
                self.step,
                rows.handles,
                rows.tokens,
                rows.counts,
                rows.status,
                rows.logprobs,
                drained,
                extras=rows.extras,
            )
        except LaneFull as full:
            return self._send_late(rows, drained, full)
        except LaneLost as lost:
            return self._lost(lost)
        return True

    def poll(self) -> None:
        """Read acknowledgements, where there is nothing to send."""
        self._pub.poll()

    def report(self, error: Exception) -> None:
        """Tell the processor that this rank failed."""
        try:
            self._pub.fail(error)
        except LaneError as lane_error:
            _log.warning("the failure could not be reported to the processor: %s", lane_error)

    def _publish(self, rows: StepRows, drained: I64 | None) -> None:
        self._pub.publish(
            self.step,
            rows.handles,
            rows.tokens,
            rows.counts,
            rows.status,
            rows.logprobs,
            drained,
            extras=rows.extras,
        )

    def _send_late(self, rows: StepRows, drained: I64 | None, full: LaneFull) -> bool:
        """Try again until the lane takes the frame."""
        while not self.stopped:
            said = f"{full}; step {self.step} waits until the lane takes it"
            self._limit.log(_log, logging.WARNING, "full", said)
            self._notifier.watchdog()
            self._pub.wait(FULL_WAIT_S)
            try:
                self._publish(rows, drained)
            except LaneFull as again:
                full = again
            except LaneLost as lost:
                return self._lost(lost)
            else:
                return True
        return True

    def _lost(self, lost: LaneLost) -> bool:
        _log.warning("%s; step %d and the batch are dropped", lost, self.step)
        return False
