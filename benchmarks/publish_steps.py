"""Publish the steps of a workload, for tokenpipe and for the rivals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpipe.bench.pace import Pace
from tokenpipe.bench.process_usage import UsageMeter
from tokenpipe.bench.samples import Samples

from .workload import EOS, StepRows, Workload

Publish = Callable[[int, NDArray[np.int64], NDArray[np.int32]], None]


def publish_steps(work: Workload, keys: list[int], publish: Publish) -> dict[str, Any]:
    """Publish steps for `work.seconds`, then one step with EOS for all; return a report.

    `publish` gets the step's number, positions in the batch i64[n] and their tokens i32[n].
    """
    made = StepRows(keys, work.churn)
    make_us = _cost_of_making(StepRows(keys, work.churn))
    pace = Pace(work.rate / work.at_once, time.monotonic()) if work.rate else None
    begins: list[int] = []
    took = Samples()
    meter = UsageMeter.start()
    end = time.monotonic() + work.seconds
    step = 0
    while (now := time.monotonic()) < end:
        if pace is not None and step % work.at_once == 0:
            wait_s = pace.wait_s(now)
            if wait_s:
                time.sleep(wait_s)  # this keeps the rate
            pace.took()
        step += 1
        rows, tokens = made.step(step)
        begin = time.monotonic_ns()
        publish(step, rows, tokens)
        took.add(time.monotonic_ns() - begin)
        if work.rate or step == 1:
            begins.append(begin)
    every = np.arange(len(keys), dtype=np.int64)
    publish(step + 1, every, np.full(len(keys), EOS, dtype=np.int32))
    return {
        "steps": step,
        "tokens": step * (len(keys) - work.churn),
        "begins": begins,
        "make_us": make_us,
        "publish_us": took.us(),
        **meter.spent(),
    }


def _cost_of_making(made: StepRows, steps: int = 500) -> float:
    """Return the CPU µs that making a step's tokens takes. No path is charged for it."""
    meter = UsageMeter.start()
    for step in range(steps):
        made.step(step)
        time.monotonic()
    return 1e6 * meter.spent()["cpu_s"] / steps
