"""The two ways in which a client reads, for tokenpipe and for the rivals, and its report."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from tokenpipe.bench.checker import Checker
from tokenpipe.bench.process_usage import UsageMeter

from .fanout import ColumnsMessage, Recorder, check_columns
from .workload import Workload

Report = dict[str, Any]


def recorder_for(work: Workload) -> Recorder:
    """Return a recorder with room for the steps of a paced run."""
    return Recorder(int(work.rate * (work.seconds + 1)) if work.rate else 0)


def streams_report(recorder: Recorder, checker: Checker, meter: UsageMeter) -> Report:
    """Return the report of a client with a consumer for each request.

    Its tokens are checked here, after the run.
    """
    spent, last = meter.spent(), time.monotonic()
    recorder.check(checker)
    verdict = checker.verdict()
    return {
        "tokens": verdict.tokens,
        "wrong": verdict.wrong + recorder.misplaced,
        "last_s": last,
        "last_ns": recorder.last_ns(),
        "items": dict(recorder.items),
        "errors": sorted(recorder.errors),
        "verify_s": 0.0,
        **spent,
    }


def read_columns(
    messages: Iterable[ColumnsMessage],
    checker: Checker,
    meter: UsageMeter,
    work: Workload,
    index: int,
) -> Report:
    """Read and check whole messages until all requests of client `index` have ended; report."""
    kept: list[ColumnsMessage] = []
    verify_s = 0.0
    live = len(work.keys_of(index))
    for message in messages:
        if work.check_later:
            kept.append(message)
            live -= len(set(message[4]))
        else:
            begin = time.thread_time()
            live -= check_columns(checker, *message)
            verify_s += time.thread_time() - begin
        if not live:
            break
    spent, last = meter.spent(), time.monotonic()
    for message in kept:
        check_columns(checker, *message)
    verdict = checker.verdict()
    return {
        "tokens": verdict.tokens,
        "wrong": verdict.wrong,
        "last_s": last,
        "verify_s": verify_s,
        **spent,
    }
