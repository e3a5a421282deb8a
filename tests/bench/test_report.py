"""The table shows the report, and shows what is wrong."""

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


def test_leaves_out_values_that_were_not_measured() -> None:
    options = Options(dp=1, tp=1, steps=7, discard=True)
    text = shown(summary(clients=[], options=options))
    assert "nothing was published" in text and "every token" not in text
    assert "publish to client" not in text
    assert "tokens an item" in shown(
        summary(clients=[{**CLIENT, "item_tokens": {"p50": 1, "p99": 2, "max": 3}}])
    )


def test_says_that_a_flood_measures_queues_and_credits_the_trace() -> None:
    flood, paced = shown(summary()), shown(summary(options=Options(dp=1, tp=1, rate=100.0)))
    assert "rows wait in queues" in flood and "--rate 100" in flood
    assert "wait in queues" not in paced
    assert "somebody" in flood and "somebody" in paced
    discard = Options(dp=1, tp=1, steps=7, discard=True)
    assert "wait in queues" not in shown(summary(clients=[], options=discard))


def test_says_how_many_preemptions_and_aborts_took_effect() -> None:
    events = {"preempt": 5, "Rescheduled": 4, "rescheduled_preempted": 3, "abort": 2, "Aborted": 3}
    text = shown(summary({"cancelled": 4}, events))
    assert "3 of 5 ordered" in text and "and rescheduled; the others had ended" in text
    assert "rescheduled for another reason" in text
    assert "3 of 6 ordered" in text
    assert "2 ordered by the engine, 4 cancelled by clients; the others had ended" in text
    all_of_them = {"preempt": 2, "Rescheduled": 2, "rescheduled_preempted": 2}
    text = shown(summary(events=all_of_them))
    assert "2 of 2 ordered" in text and "had ended" not in text and "another reason" not in text
    assert "preempted" not in shown(summary())
