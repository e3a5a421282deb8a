"""Schedule as the reference scheduler does, and preempt and abort requests at random.

Errors of an output path show when a request leaves its slot before its end, so the bench has many
such requests.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Iterable, Mapping

from tokenpipe.engine import BoundRequest, PlanSender, Scheduler, SchedulerPipe
from tokenpipe.events import Event, Finished, Released

FIRST_S_PER_TOKEN = 1e-3
LEARNING_RATE = 0.1


class RandomScheduler(Scheduler):
    """A Scheduler that preempts and aborts requests at random times; the same ones for each `seed`.

    `preempt_rate` and `abort_rate` are probabilities for each bind. The time is drawn evenly over
    the seconds that the request is expected to run, as learnt from the requests that finished.
    `counts` has how often it happened: "preempt" and "abort".
    """

    def __init__(
        self,
        pipe: SchedulerPipe,
        lanes: Mapping[int, PlanSender],
        *,
        slots: int,
        preempt_rate: float = 0.0,
        abort_rate: float = 0.0,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(pipe, lanes, slots=slots)
        self._rates = {"preempt": preempt_rate, "abort": abort_rate}
        self._random = random.Random(seed)
        self._clock = clock
        self._s_per_token = FIRST_S_PER_TOKEN
        self._due: list[tuple[float, int, str]] = []  # a heap of (time, handle, what)
        self._begun: dict[int, tuple[BoundRequest, float, int]] = {}  # with time, output tokens

    def wait_s(self, timeout_s: float) -> float:
        """Return how long the loop may wait for events, at most `timeout_s`, in seconds."""
        if not self._due:
            return timeout_s
        return max(0.0, min(timeout_s, self._due[0][0] - self._clock()))

    def handle(self, events: Iterable[Event]) -> None:
        """Take the events of the Pipeline, and learn how long a token takes."""
        events = list(events)
        for event in events:
            match event:
                case Finished(_, handle):
                    self._learn(handle, event.output_tokens)
                case Released(_, handle):
                    self._begun.pop(handle, None)
        super().handle(events)

    def schedule(self, grant: int | None = None) -> None:
        """Preempt and abort the requests that are due, then schedule as the reference does."""
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            _, handle, what = heapq.heappop(self._due)
            if handle in self._begun:
                self._disturb(self._begun[handle][0], what)
        super().schedule(grant)

    def bound(self, binding: BoundRequest, output_tokens: int) -> None:
        """Draw whether this request is preempted or aborted, and when."""
        super().bound(binding, output_tokens)
        now = self._clock()
        self._begun[binding.handle] = binding, now, output_tokens
        run_s = (binding.request.params.max_tokens - output_tokens) * self._s_per_token
        for what, rate in self._rates.items():
            if self._random.random() < rate:
                due = now + self._random.random() * run_s
                heapq.heappush(self._due, (due, binding.handle, what))

    def _disturb(self, binding: BoundRequest, what: str) -> None:
        if binding.over or binding.freed:
            return
        self.counts[what] += 1
        if what == "abort":
            self.abort(binding.request)
        else:
            self.preempt(binding)

    def _learn(self, handle: int, output_tokens: int) -> None:
        if handle not in self._begun:
            return
        _, bound_at, before = self._begun[handle]
        if output_tokens > before:
            took_s = (self._clock() - bound_at) / (output_tokens - before)
            self._s_per_token += LEARNING_RATE * (took_s - self._s_per_token)
