"""Publish the steps of a worker's loop: number them, and wait where the lane is full."""

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
    """A rank's frames, in order. Set `muted` while all handles of the rank are dead."""

    def __init__(
        self,
        pub: Publishes,
        notifier: Notifier,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pub = pub
        self._notifier = notifier
        self._limit = RateLimit(1.0, clock)
        self.step = 0  # number of the newest frame
        self.muted = False
        self.stopped = False  # no more attempts at a full lane

    def send(self, rows: StepRows, drained: I64 | None = None) -> bool:
        """Publish one frame; False where the processor died. Waits while the lane is full."""
        self.step += 1  # also of a frame that is not sent: all TP ranks number theirs alike
        if self.muted:
            self._pub.poll()
            return True
        try:  # as `_publish`, without its call: the caches are cold behind a forward
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
            _log.warning("step %d is dropped, and the batch with it: %s", self.step, lost)
            return False
        return True

    def poll(self) -> None:
        """Keep the lane going where there is nothing to send."""
        self._pub.poll()

    def report(self, error: Exception) -> None:
        """Tell the processor that this rank cannot go on."""
        try:
            self._pub.fail(error)
        except LaneError as lane_error:
            _log.warning("the processor is not told of the failure: %s", lane_error)

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
        """Publish what a full lane did not take, as soon as it does."""
        while not self.stopped:
            self._limit.log(_log, logging.WARNING, "full", f"step {self.step} waits: {full}")
            self._notifier.watchdog()
            self._pub.wait(FULL_WAIT_S)
            try:
                self._publish(rows, drained)
            except LaneFull as again:
                full = again
            except LaneLost as lost:
                _log.warning("step %d is dropped, and the batch with it: %s", self.step, lost)
                return False
            else:
                return True
        return True
