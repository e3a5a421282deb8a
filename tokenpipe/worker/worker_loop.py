"""The loop of a worker rank: plans in, steps of the engine out. No process, no signal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np

from tokenpipe.errors import FieldError, LaneLost, RequestRefused
from tokenpipe.extras import RowAnnex
from tokenpipe.logs import RateLimit
from tokenpipe.notify import Notifier
from tokenpipe.types import RowStatus
from tokenpipe.wire import StepBind, StepPlan

from .executor import Executor, StepRows
from .protocols import PlanLane, Publishes

IDLE_S = 0.1  # a worker with nothing to publish polls at least so often
_log = logging.getLogger("tokenpipe.worker")


class WorkerLoop:
    """Run an engine as its scheduler's plans say.

    A rank alone runs on by itself between plans. Ranks of a tensor-parallel group run `lockstep`:
    each plan grants a number of `steps`, and no other plan is applied before
    these are done, so that all of them make the same calls in the same order.
    """

    def __init__(
        self,
        lane: PlanLane,
        pub: Publishes,
        executor: Executor,
        *,
        notifier: Notifier,
        lockstep: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lane = lane
        self._pub = pub
        self._executor = executor
        self._notifier = notifier
        self._lockstep = lockstep
        self._limit = RateLimit(1.0, clock)
        self._running: set[int] = set()
        self._drained: list[int] = []
        self._refused: dict[int, tuple[RowStatus, RowAnnex]] = {}  # handles, until published
        self._step = 0
        self.stopped = False

    def run(self) -> None:
        """Work until the engine ends the lane or someone sets `stopped`."""
        while not (self.stopped or self._lane.ended):
            self._turn()
            self._notifier.watchdog()

    def _turn(self) -> None:
        runs_on = not self._lockstep and bool(self._running)
        for plan in self._lane.recv(0.0 if runs_on else IDLE_S):
            self._apply(plan)
            for _ in range(plan.steps if self._lockstep else 0):
                self._run_step()
                self._notifier.watchdog()
        if self._lockstep or not self._running:
            self._publish(None)
        else:
            self._run_step()

    def _run_step(self) -> None:
        self._publish(self._executor.step() if self._running else None)

    def _apply(self, plan: StepPlan) -> None:
        if plan.reset:
            self._forget()
        frees = set(plan.frees)
        for handle in plan.frees:
            if handle in self._running:
                self._running.discard(handle)
                self._executor.free(handle)
            self._drained.append(handle)
        for binding in plan.binds:
            if binding.handle not in frees:
                self._admit(binding)

    def _forget(self) -> None:
        """Drop every handle without a word: the rank was lost, and this process was not."""
        for handle in self._running:
            self._executor.free(handle)
        self._running.clear()
        self._drained.clear()
        self._refused.clear()

    def _admit(self, binding: StepBind) -> None:
        try:
            self._executor.admit(binding)
        except (RequestRefused, FieldError) as error:
            self._refuse(binding, RowStatus.REFUSED, str(error), error.field or "")
        except Exception as error:  # one bad request harms one request
            self._refuse(binding, RowStatus.ERROR, f"{type(error).__name__}: {error}")
        else:
            self._running.add(binding.handle)

    def _refuse(self, binding: StepBind, status: RowStatus, why: str, field: str = "") -> None:
        self._refused[binding.handle] = status, RowAnnex(error=why, error_field=field)
        said = f"request {binding.key:#x} is refused: {why}"
        self._limit.log(_log, logging.WARNING, "refused", said)

    def _publish(self, rows: StepRows | None) -> None:
        """Send a step with what became of handles since the last one; else keep the lane going."""
        if rows is None and not self._drained and not self._refused:
            self._pub.poll()
            return
        try:
            self._publish_step(rows or StepRows(np.zeros(0, np.int64), np.zeros(0, np.int32)))
        except LaneLost as error:  # the processor died: its next life knows none of our handles
            _log.warning("forgets its batch: %s", error)
            self._forget()

    def _publish_step(self, rows: StepRows) -> None:
        if self._refused:  # a step of their own: the executor's columns stay as they are
            refusals = list(self._refused.values())
            self._step += 1
            self._pub.publish(
                self._step,
                np.fromiter(self._refused, np.int64, len(refusals)),
                np.zeros(0, np.int32),
                counts=np.zeros(len(refusals), np.int32),
                status=np.array([status for status, _ in refusals], np.uint8),
                annexes={row: extras for row, (_, extras) in enumerate(refusals)},
            )
            self._refused.clear()
        self._step += 1
        self._pub.publish(
            self._step,
            rows.handles,
            rows.tokens,
            counts=rows.counts,
            status=rows.status,
            logprobs=rows.logprobs,
            drained=np.array(self._drained, np.int64) if self._drained else None,
            **({"annexes": rows.annexes} if rows.annexes else {}),
        )
        self._drained.clear()
