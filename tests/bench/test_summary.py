"""The reports are added up, and each fault alone makes the run wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokenpipe.bench.options import Options
from tokenpipe.bench.summary import Report, summarise, with_leftovers
from tokenpipe.bench.traces import Arrival, Trace

TRACE = Trace("two", "somebody", (Arrival(0.0, 1, 5), Arrival(1.0, 1, 7)), 3)
WORKER: Report = {
    "tokens": 14,
    "undelivered": 0,
    "publish_us": {"p50": 3.0, "p99": 5.0, "max": 9.0},
    "cpu_s": 0.5,
    "rss_mb": 50.0,
}
CLIENT: Report = {
    "tokens": 12,
    "lost": 0,
    "duplicated": 0,
    "misattributed": 0,
    "reordered": 0,
    "misscored": 0,
    "misspelled": 0,
    "short": 0,
    "cancelled": 0,
    "reasons": {"length": 2},
    "error_codes": {},
    "errors": [],
    "latency_us": {"p50": 100.0, "p99": 200.0, "max": 300.0},
    "item_tokens": {},
    "verify_s": 0.25,
    "first": 10.0,
    "last": 12.0,
    "cpu_s": 1.0,
    "rss_mb": 60.0,
}
EVENTS = {"Finished": 2, "binds": 2, "Released": 2}


def summary(
    client: dict[str, Any] | None = None,
    events: dict[str, int] | None = None,
    unreleased: int = 0,
    options: Options | None = None,
    **more: Any,
) -> Report:
    options = options or Options(dp=1, tp=1)
    return summarise(
        options,
        TRACE,
        options.make_topology(),
        workers=[WORKER],
        clients=more.get("clients", [{**CLIENT, **(client or {})}]),
        processor_cpu_s=2.0,
        engine_cpu_s=0.25,
        memory_mb={"engine": 40.04, "processor": 30.0},
        events=events or EVENTS,
        unreleased=unreleased,
        faults=more.get("faults"),
    )


def test_with_chaos_an_error_needs_a_code() -> None:
    ends = {"reasons": {"length": 1, "error": 1}}
    typed = {**ends, "error_codes": {"lost": 1}}
    assert not summary(typed)["ok"]
    assert summary(typed, faults={"kill-processor": 1})["ok"]
    assert not summary(ends, faults={"kill-processor": 1})["ok"]


def test_files_that_are_left_are_a_fault(tmp_path: Path) -> None:
    assert with_leftovers(summary(), tmp_path / "gone")["ok"]
    left = with_leftovers(summary(), tmp_path)
    assert (left["ok"], left["left_behind"]) == (False, 1)


def test_a_run_that_is_right() -> None:
    report = summary()
    assert report["ok"]
    assert (report["requests"], report["ended"], report["tokens_out"]) == (2, 2, 12)
    assert (report["seconds"], report["tokens_per_s"]) == (2.0, 6)
    assert report["rss_mb"] == {"engine": 40.0, "processor": 30.0, "worker": 50.0, "client": 60.0}
    assert report["trace"] == {"name": "two", "credit": "somebody", "skipped": 3}
    assert report["config"]["dp"] == report["config"]["topology"]["data_parallel_size"] == 1
    assert report["machine"]["cores"] >= 1


def test_cpu_is_per_token_and_without_the_checks() -> None:
    cpu = summary()["cpu_us_per_token"]
    assert cpu["client"] == pytest.approx(0.75e6 / 12, abs=1e-3)
    assert cpu["verify"] == pytest.approx(0.25e6 / 12, abs=1e-3)
    parts = ("worker", "processor", "client", "engine")
    assert cpu["total"] == pytest.approx(sum(cpu[part] for part in parts), abs=1e-3)


@pytest.mark.parametrize(
    "fault",
    ["lost", "duplicated", "misattributed", "reordered", "misscored", "misspelled", "short"],
)
def test_each_fault_alone_decides(fault: str) -> None:
    report = summary({fault: 1})
    assert not report["ok"] and report[fault] == 1


def test_an_error_a_missing_end_and_a_slot_that_stays_bound_are_faults_too() -> None:
    assert not summary({"reasons": {"length": 1, "error": 1}, "errors": ["boom"]})["ok"]
    assert not summary({"reasons": {"length": 1}})["ok"]
    assert not summary(unreleased=1)["ok"]
    assert not summary(events={**EVENTS, "Mismatch": 1})["ok"]


@pytest.mark.parametrize(
    ("reasons", "aborted", "unexplained"),
    [
        ({"length": 2}, 0, 0),
        ({"length": 1, "abort": 1}, 1, 0),
        ({"length": 1, "abort": 1}, 0, 1),  # the client saw an abort that the engine did not do
        ({"length": 2}, 1, 1),  # the client saw another end than the engine's abort
        ({"length": 1, "closed": 1}, 1, 0),  # a client that closes a stream does not see its end
        ({"length": 1, "closed": 1}, 0, 0),
        ({"closed": 1, "abort": 1}, 3, 1),
    ],
)
def test_aborts_are_those_that_were_ordered(
    reasons: dict[str, int], aborted: int, unexplained: int
) -> None:
    report = summary({"reasons": reasons}, {**EVENTS, "Aborted": aborted})
    assert report["unexplained"] == unexplained
    assert report["ok"] is (unexplained == 0)


def test_quantiles_are_those_of_the_slowest_process() -> None:
    slow = {**CLIENT, "latency_us": {"p50": 50.0, "p99": 900.0, "max": 901.0}, "last": 14.0}
    report = summary(clients=[{**CLIENT, "reasons": {"length": 1}}, {**slow, "reasons": {}}])
    assert report["step_latency_us"] == {"p50": 100.0, "p99": 900.0, "max": 901.0}
    assert report["seconds"] == 4.0


def test_a_run_that_discards_has_no_client_reports() -> None:
    report = summary(clients=[], options=Options(dp=1, tp=1, steps=7, discard=True))
    assert report["ok"] and report["tokens_out"] == 0
    assert report["cpu_us_per_token"]["worker"] == pytest.approx(0.5e6 / 14, abs=1e-3)
