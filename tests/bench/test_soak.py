"""A whole production trace, where it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokenpipe.bench.options import Options
from tokenpipe.bench.run import run
from tokenpipe.bench.traces import load

BESIDE = Path(__file__).parents[2].parent / "shared" / "traces"
AZURE = Path(os.environ.get("TOKENPIPE_TRACES", BESIDE)) / "azure_llm_2023_conv.csv"


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.skipif(not AZURE.exists(), reason="no traces in $TOKENPIPE_TRACES")
def test_a_whole_trace_comes_through_token_by_token() -> None:
    trace = load(AZURE)
    assert len(trace.arrivals) == 19_366 and trace.skipped == 0
    report = run(Options(trace=AZURE, speed_up=120.0, batch=256, abort_rate=0.0))
    assert report["ok"], report
    assert report["ended"] == report["reasons"]["length"] == 19_366
    assert report["tokens_out"] == trace.output_tokens > 4_000_000
    assert report["events"]["preempt"] > 100  # it was not a quiet ride
