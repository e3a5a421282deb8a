"""The loop of a worker rank: apply plans, run steps of the executor, publish their rows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np

from tokenpipe.errors import LaneError, LaneLost
from tokenpipe.notify import WATCHDOG_S, Notifier
from tokenpipe.wire import StepBind, StepPlan

from .executor import Executor, StepRows
from .protocols import PlanLane, Publishes
from .refusals import Refusals
from .step_sender import I64, StepSender

IDLE_S = 0.5  # the longest wait for a plan, if no supervisor waits for signs of life
_log = logging.getLogger("tokenpipe.worker")


class WorkerLoop:
    """Run an executor as the plans of its engine say, and publish its rows.

    Args:
        lane: the worker's end of its `StepLane`.
        pub: the `Publisher` of this rank.
        executor: see `Executor`.
        notifier: gets a sign of life from each turn. None: there is no supervisor.
        lockstep: run the `steps` that each plan allows, and no other step. Then all TP ranks make
            the same calls in the same order. Rows of a step in flight wait for the steps of the
            next plan, or until all requests are freed. Without `lockstep`, steps follow one another
            while a request runs.
        clock: returns monotonic seconds.

    If the lane is full, the step waits: it is published as soon as the lane takes it, and no other
    step runs before. If the processor died, all handles are dead, and the loop drops them.
    """

    def __init__(
        self,
        lane: PlanLane,
        pub: Publishes,
        executor: Executor,
        *,
        notifier: Notifier | None = None,
        lockstep: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lane = lane
        self._pub = pub
        self._executor = executor
        self._notifier = notifier or Notifier(None)
        self._longest_wait_s = WATCHDOG_S if notifier else IDLE_S
        self._lockstep = lockstep
        self._sender = StepSender(pub, self._notifier, clock)
        self._frame = 0  # number of the newest frame
        self._running: set[int] = set()
        self._leaving: set[int] = set()  # freed, but a step in flight may have a row of them
        self._drained: list[int] = []  # the next frame names them
        self._refused = Refusals(clock)
        self._muted = False  # all handles are dead, and the plan that drops them has not come yet
        self._plain = True  # not muted, and no handle is drained or refused
        self._idle = True  # nothing to run before the next plan
        self.stopped = False

    def run(self) -> None:
        """Run turns until the engine ends the lane or `stop` is called.

        Raises LaneLost if the engine died. An exception of the executor is reported to the
        processor and raised again. The processor reschedules the requests of this rank.
        """
        try:
            while not (self.stopped or self._lane.ended):
                self.turn()
                self._notifier.watchdog()
        except LaneLost:
            raise
        except Exception as error:
            self._report(error)
            raise

    def stop(self, *_: object) -> None:
        """End `run` after the present step. `stop` may be the handler of a signal."""
        self.stopped = self._sender.stopped = True

    @property
    def idle(self) -> bool:
        """Whether there is nothing to run before the next plan."""
        return self._idle

    def turn(self) -> None:
        """Apply the plans that have come, then run a step. If nothing runs, wait for plans."""
        if self._lockstep:
            self._turn_in_lockstep()
            return
        for plan in self._lane.recv(self._idle_s if self._idle else 0.0):
            self._apply(plan)
        if self._idle:
            self._send_news()
        else:
            self.step()

    def step(self) -> None:
        """Run one step of the executor and publish its rows."""
        rows = self._executor.step()
        if rows is None or not (rows.plain and self._plain):
            self._end_step(rows)
            return
        # Behind a forward pass the caches are cold, so this uses few objects and little code.
        self._frame = frame = self._frame + 1
        try:
            self._pub.publish(frame, rows.handles, rows.tokens)
        except LaneError as error:
            if not self._sender.retry(frame, rows, None, error):
                self._processor_died()

    def _end_step(self, rows: StepRows | None) -> None:
        if rows is None:
            self._idle = True
            self._send_news()
        elif len(rows.handles) or rows.drained or not self._plain:
            self._send_all(rows)
        else:
            self._pub.poll()

    def _turn_in_lockstep(self) -> None:
        for plan in self._lane.recv(self._idle_s):
            self._apply(plan)
            for _ in range(plan.steps):
                if self.stopped:
                    return
                if not self._idle:
                    self.step()
                self._notifier.watchdog()
            while self._leaving and not (self._running or self._idle):  # this launches nothing
                self.step()
            self._send_news()  # after each plan, so that all TP ranks number their frames alike
        self._pub.poll()

    @property
    def _idle_s(self) -> float:
        return min(self._longest_wait_s, self._pub.poll_within_s)

    # --- plans ---

    def _apply(self, plan: StepPlan) -> None:
        if plan.reset:
            self._forget()
        frees = set(plan.frees)
        for handle in plan.frees:
            if handle in self._running:
                self._free(handle)
            elif handle not in self._leaving:  # refused or unknown: its slot waits to be released
                self._drained.append(handle)
        for binding in plan.binds:
            if binding.handle not in frees:
                self._admit(binding)
        self._plain = not (self._drained or self._refused or self._muted)
        self._idle = not (self._running or self._leaving)

    def _admit(self, binding: StepBind) -> None:
        try:
            self._executor.admit(binding)
        except Exception as error:  # it ends this request and no other
            self._refused.add(binding, error)
        else:
            self._running.add(binding.handle)

    def _free(self, handle: int) -> None:
        self._running.discard(handle)
        if self._executor.free(handle):
            self._leaving.add(handle)
        else:
            self._drained.append(handle)

    def _forget(self) -> None:
        """Drop all handles. They are dead, so no frame names them as drained."""
        for handle in list(self._running):
            self._free(handle)
        while self._leaving and (rows := self._executor.step()) is not None:  # steps in flight
            self._leaving.difference_update(rows.drained)
        self._leaving.clear()
        self._drained.clear()
        self._refused.clear()
        self._muted, self._plain, self._idle = False, True, True

    # --- publishing ---

    def _send_news(self) -> None:
        """Publish the drained and refused handles. If there are none, read acknowledgements."""
        if self._plain:
            self._pub.poll()
        else:
            self._send_all(StepRows((), ()))

    def _send_all(self, rows: StepRows) -> None:
        """Publish rows, and the handles that were refused or drained since the last frame."""
        alive, self._plain = True, not self._muted
        if self._refused:  # in a frame of their own, so that the columns of `rows` stay as they are
            alive = self._send(self._refused.take(), None)
        for handle in rows.drained:
            if handle in self._leaving:
                self._leaving.discard(handle)
                self._drained.append(handle)
        drained, self._drained = self._drained, []
        if alive and (drained or len(rows.handles)):
            alive = self._send(rows, np.array(drained, np.int64) if drained else None)
        if not alive:
            self._processor_died()

    def _send(self, rows: StepRows, drained: I64 | None) -> bool:
        self._frame += 1  # also while muted, so that all TP ranks number their frames alike
        return self._muted or self._sender.send(self._frame, rows, drained)

    def _processor_died(self) -> None:
        """Drop the batch: a new processor does not know its handles.

        In lockstep the plan with `reset` drops it, so that all TP ranks drop it at the same step.
        Until then steps run, and nothing is published.
        """
        if self._lockstep:
            self._muted = bool(self._running or self._leaving)
            self._plain = not self._muted
        else:
            self._forget()

    def _report(self, error: Exception) -> None:
        try:
            self._pub.fail(error)
        except LaneError as lane_error:
            _log.warning("the failure could not be reported to the processor: %s", lane_error)
