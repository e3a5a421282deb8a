"""The table says what the report has, and says it when something is wrong."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from tokenpipe.bench.options import Options
from tokenpipe.bench.report import table

from .test_summary import CLIENT, summary


def shown(report: dict[str, Any]) -> str:
    console = Console(width=160, record=True, file=io.StringIO())

    console.print(table(report))
    return console.export_text()


def test_shows_a_run_that_is_right() -> None:
    text = shown(summary())
    assert "2 of 2" in text and "2 length" in text
    assert "wrong tokens" in text and "none" in text and "every token once, in order" in text
    assert "100 / 200 / 300" in text and "wrong requests" not in text


def test_shows_what_is_wrong() -> None:
    text = shown(
        summary(
            {"lost": 3, "misscored": 4, "short": 1, "reasons": {"error": 1}, "errors": ["boom"]},
            unreleased=2,
        )
    )
    assert "3 lost, 4 misscored" in text and "none" not in text
    assert "1 not ended, 1 short, 2 unreleased" in text
    assert "boom" in text and "WRONG" in text


def test_leaves_out_what_was_not_measured_and_says_when_nothing_was_published() -> None:
    options = Options(dp=1, tp=1, steps=7, discard=True)
    text = shown(summary(clients=[], options=options))
    assert "nothing was published" in text and "every token" not in text
    assert "publish to client" not in text
    assert "tokens an item" in shown(
        summary(clients=[{**CLIENT, "item_tokens": {"p50": 1, "p99": 2, "max": 3}}])
    )


def test_says_that_a_flood_measures_queues_and_whose_the_lengths_are() -> None:
    flood, paced = shown(summary()), shown(summary(options=Options(dp=1, tp=1, rate=100.0)))
    assert "time spent in queues" in flood and "--rate 100" in flood
    assert "queues" not in paced
    assert "somebody" in flood and "somebody" in paced
    discard = Options(dp=1, tp=1, steps=7, discard=True)
    assert "queues" not in shown(summary(clients=[], options=discard))


def test_says_what_became_of_preempts_and_aborts() -> None:
    events = {"preempt": 5, "Rescheduled": 4, "rescheduled_preempted": 3, "abort": 2, "Aborted": 3}
    text = shown(summary({"cancelled": 4}, events))
    assert "3 of 5 ordered" in text and "and rescheduled; the others ended before" in text
    assert "rescheduled otherwise" in text
    assert "3 of 6 asked" in text
    assert "by the engine 2, given up by clients 4; the others ended before" in text
    all_of_them = {"preempt": 2, "Rescheduled": 2, "rescheduled_preempted": 2}
    text = shown(summary(events=all_of_them))
    assert "2 of 2 ordered" in text and "ended before" not in text and "otherwise" not in text
    assert "preempted" not in shown(summary())
