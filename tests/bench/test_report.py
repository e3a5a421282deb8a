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
    assert "0 / 0 / 0 / 0 / 0" in text and "every token once, in order" in text
    assert "100 / 200 / 300" in text and "wrong requests" not in text


def test_shows_what_is_wrong() -> None:
    text = shown(
        summary(
            {"lost": 3, "misscored": 4, "short": 1, "reasons": {"error": 1}, "errors": ["boom"]},
            unreleased=2,
        )
    )
    assert "3 / 0 / 0 / 0 / 4" in text
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
