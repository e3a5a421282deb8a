"""Make the oracle's tokens for one rank, at a limited number of steps a second."""

from __future__ import annotations

import time
from collections.abc import Callable

from tokenpipe.wire import StepBind
from tokenpipe.worker import StepLogprobs, StepRows

from .oracle import VOCAB_BITS, logprobs_of
from .oracle_batch import OracleBatch
from .pace import Pace
from .process_usage import UsageMeter

LONGEST_SLEEP_S = 0.05  # then plans are read


class PacedExecutor:
    """An executor without a model.

    Args:
        batch: the source of each handle's tokens.
        rate: steps a second; None: no limit.
        logprobs: number of top logprobs for each token; None: no logprobs.
        bits: of the oracle's tokens.
        runs: False for a TP rank that does not publish: it takes requests and runs no step.
        lockstep: each call of `step` is a step. Without it, a step that is due later than
            `LONGEST_SLEEP_S` is left to a later call.
    """

    def __init__(
        self,
        batch: OracleBatch,
        *,
        rate: float | None = None,
        logprobs: int | None = None,
        bits: int = VOCAB_BITS,
        runs: bool = True,
        lockstep: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._batch = batch
        self._logprobs = logprobs
        self._bits = bits
        self._runs = runs
        self._lockstep = lockstep
        self._clock = clock
        self._sleep = sleep
        self._pace = Pace(rate, clock())
        self._binds: dict[int, StepBind] = {}  # of the next step: a change of the batch is slow
        self._frees: list[int] = []
        self._paused = True
        self.meter: UsageMeter | None = None  # runs from the first request

    def admit(self, binding: StepBind) -> None:
        """Give a handle tokens from the next step on."""
        self.meter = self.meter or UsageMeter.start()
        self._binds[binding.handle] = binding

    def free(self, handle: int) -> None:
        """Give a handle no more tokens."""
        if self._binds.pop(handle, None) is None:
            self._frees.append(handle)

    def step(self) -> StepRows | None:
        """Wait until a step is due and return its rows; None if each handle has its tokens."""
        if self._binds or self._frees:
            self._batch.change(self._binds.values(), self._frees)
            self._binds, self._frees = {}, []
        if not (self._runs and len(self._batch)):
            self._paused = True
            return None
        if not self._is_due():
            return StepRows((), ())
        self._pace.took()
        rows = self._batch.step()
        logprobs = None
        if self._logprobs is not None:
            logprobs = StepLogprobs(*logprobs_of(rows.tokens, self._logprobs, self._bits))
        return StepRows(rows.handles, rows.tokens, rows.counts, logprobs)

    def _is_due(self) -> bool:
        now = self._clock()
        if self._paused:
            self._pace.restart(now)
            self._paused = False
        wait_s = self._pace.wait_s(now)
        late = wait_s > LONGEST_SLEEP_S and not self._lockstep
        if wait_s:
            self._sleep(LONGEST_SLEEP_S if late else wait_s)
        return not late
