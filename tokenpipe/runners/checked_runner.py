"""Run a model runner in a worker's loop without an engine, and keep what it publishes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from tokenpipe._core import StepPacker
from tokenpipe.types import RowStatus
from tokenpipe.wire import StepBind, StepFrame, StepPlan
from tokenpipe.worker import WorkerLoop, as_array, extras_columns, logprob_columns

from .model_runner import ModelRunner

SLOTS = 32


class Packed:
    """A publisher that packs each step, reads the frame again and keeps its rows."""

    def __init__(self) -> None:
        self.packer = StepPacker(0, 0, SLOTS, 1 << 30)
        self.tokens: defaultdict[int, list[int]] = defaultdict(list)
        self.logprobs: defaultdict[int, list[tuple[int, float, int]]] = defaultdict(list)
        self.bad: list[int] = []
        self.drained: list[int] = []
        self.failure = ""
        self.publish_s: list[float] = []

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
        """Pack a step and read it again."""
        began = time.perf_counter()
        extras_len, packed = extras_columns(extras or {}, len(handles), counts)
        raw = self.packer.pack(
            1, 2, 3, step, step, 0,
            as_array(handles, np.int64), as_array(tokens, np.int32), counts, status,
            None if drained is None else as_array(drained, np.int64),
            *logprob_columns(logprobs, len(handles)),
            extras_len=extras_len, extras=packed,
        )  # fmt: skip
        self.packer.commit()
        self.publish_s.append(time.perf_counter() - began)
        frame = StepFrame.unpack(raw)
        token, lp = 0, 0
        for row, handle in enumerate(frame.handles.tolist()):
            count = int(frame.counts[row])
            self.tokens[handle] += frame.tokens[token : token + count].tolist()
            token += count
            if frame.status[row] == RowStatus.DRAINED:
                self.drained.append(handle)
            elif frame.status[row] != RowStatus.OK:
                self.bad.append(handle)
            if frame.lp_k[row] >= 0:
                width = int(frame.lp_k[row]) + 1
                value = float(frame.lp_values[lp])
                self.logprobs[handle].append((width, value, int(frame.lp_ids[lp])))
                lp += width * count

    poll_within_s = 1.0

    def poll(self) -> None:
        """Do nothing: there is no lane."""

    def wait(self, timeout_s: float) -> None:
        """Do nothing: there is no lane that could be full."""

    def fail(self, error: str | BaseException) -> None:
        """Keep the reason of a failure."""
        self.failure = str(error)


class Plans:
    """A step lane without an engine."""

    ended = False

    def __init__(self) -> None:
        self._plans: list[StepPlan] = []

    def add(self, binds: Iterable[StepBind], frees: Iterable[int]) -> None:
        """Add a plan for the next turn."""
        self._plans.append(StepPlan(0, tuple(binds), tuple(frees)))

    def recv(self, timeout_s: float) -> list[StepPlan]:
        """Return the plans. This never waits."""
        plans, self._plans = self._plans, []
        return plans


class CheckedRunner:
    """A runner in a worker's loop, and the rows that it published."""

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner
        self.pub = Packed()
        self._plans = Plans()
        self._loop = WorkerLoop(self._plans, self.pub, runner)

    def change(self, binds: Iterable[StepBind] = (), frees: Iterable[int] = ()) -> None:
        """Bind and free requests with the next step."""
        self._plans.add(binds, frees)

    def step(self) -> None:
        """Run one step."""
        self._loop.turn()

    def finish(self) -> None:
        """Run until nothing runs."""
        self._loop.turn()
        while not self._loop.idle:
            self._loop.turn()
