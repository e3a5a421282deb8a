"""The loop of a worker rank: plans come in, steps of the executor go out. No process, no signal."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from tokenpipe.errors import LaneLost
from tokenpipe.notify import WATCHDOG_S, Notifier
from tokenpipe.wire import StepBind, StepPlan

from .executor import Executor, StepRows
from .protocols import PlanLane, Publishes
from .refusals import Refusals
from .step_sender import StepSender

IDLE_S = 0.5  # the longest wait for a plan, where nobody waits for signs of life


class WorkerLoop:
    """Run an executor as the plans of its engine say, and publish what it computes.

    Args:
        lane: the worker's end of its `StepLane`.
        pub: the `Publisher` of this rank.
        executor: see `Executor`.
        notifier: told that the loop still runs; None tells nobody.
        lockstep: run the `steps` that each plan allows, and no other step. All TP ranks of a
            tensor-parallel group then make the same calls in the same order. Rows of a step in
            flight wait for the steps of the next plan, or until every sequence is freed. Without
            it, steps follow one another by themselves while a sequence runs.
        clock: seconds, monotonic; for tests.

    A lane that is full holds the step back: it is published as soon as the lane takes it, and no
    forward runs before. Where the processor died, its handles are dead: the loop drops them.
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
        self._running: set[int] = set()
        self._leaving: set[int] = set()  # freed, but a step in flight may have a row of it
        self._drained: list[int] = []  # to be named with the next frame
        self._refused = Refusals(clock)
        self._news = False  # whether there are drained or refused handles
        self._idle = True  # nothing to run until a plan comes

    def run(self) -> None:
        """Work until the engine ends the lane or `stop` is called.

        Raises LaneLost where the engine died. An exception of the executor is reported to the
        processor, which hands the requests of this rank back, and is raised.
        """
        try:
            while not (self.stopped or self._lane.ended):
                self.turn()
                self._notifier.watchdog()
        except LaneLost:
            raise
        except Exception as error:
            self._sender.report(error)
            raise

    def stop(self, *_: object) -> None:
        """End `run` after the step that runs now. This may be the handler of a signal."""
        self._sender.stopped = True

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._sender.stopped

    @property
    def idle(self) -> bool:
        """Whether there is nothing to run before the next plan."""
        return self._idle

    def turn(self) -> None:
        """Apply the plans that are there, then run a step; wait for plans where nothing runs."""
        if self._lockstep:
            self._turn_in_lockstep()
            return
        for plan in self._lane.recv(self._idle_s if self._idle else 0.0):
            self._apply(plan)
        if self._idle:
            self._flush()
        else:
            self.step()

    def step(self) -> None:
        """Run one step of the executor and publish what it gives."""
        rows = self._executor.step()
        if rows is None:
            self._idle = True
            self._flush()
        elif self._news or rows.drained:
            self._send_all(rows)
        elif len(rows.handles):
            if not self._sender.send(rows):
                self._processor_died()
        else:
            self._sender.poll()

    def _turn_in_lockstep(self) -> None:
        for plan in self._lane.recv(self._idle_s):
            self._apply(plan)
            for _ in range(plan.steps):
                if self.stopped:
                    return
                if not self._idle:
                    self.step()
                self._notifier.watchdog()
            while self._leaving and not (self._running or self._idle):  # nothing is launched
                self.step()
            self._flush()  # here, and not where a wait is over: frames are numbered alike
        self._sender.poll()

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
            elif handle not in self._leaving:  # refused or unknown: its slot waits for the word
                self._drained.append(handle)
        for binding in plan.binds:
            if binding.handle not in frees:
                self._admit(binding)
        self._news = bool(self._drained or self._refused)
        self._idle = not (self._running or self._leaving)

    def _admit(self, binding: StepBind) -> None:
        try:
            self._executor.admit(binding)
        except Exception as error:  # one bad request harms one request
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
        """Drop every handle, and name none as drained: they are dead."""
        for handle in list(self._running):
            self._free(handle)
        while self._leaving and (rows := self._executor.step()) is not None:  # in flight: dropped
            self._leaving.difference_update(rows.drained)
        self._leaving.clear()
        self._drained.clear()
        self._refused.clear()
        self._sender.muted = self._news = False
        self._idle = True

    # --- publishing ---

    def _flush(self) -> None:
        """Publish what became of handles; where there is nothing of it, keep the lane going."""
        if self._news:
            self._send_all(StepRows((), ()))
        else:
            self._sender.poll()

    def _send_all(self, rows: StepRows) -> None:
        """Publish rows with all that became of handles since the last frame."""
        alive, self._news = True, False
        if self._refused:  # a frame of their own: the executor's columns stay as they are
            alive = self._sender.send(self._refused.take())
        for handle in rows.drained:
            if handle in self._leaving:
                self._leaving.discard(handle)
                self._drained.append(handle)
        drained, self._drained = self._drained, []
        if alive and (drained or len(rows.handles)):
            alive = self._sender.send(rows, np.array(drained, np.int64) if drained else None)
        if not alive:
            self._processor_died()

    def _processor_died(self) -> None:
        """Drop the batch: the processor's next life knows none of its handles.

        In lockstep the plan with `reset` does that, so that each TP rank does it at the same step;
        until then the steps run, and nothing is published.
        """
        if self._lockstep:
            self._sender.muted = bool(self._running or self._leaving)
        else:
            self._forget()
