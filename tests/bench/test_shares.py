"""The requests of a run, and how the clients share them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenpipe.bench.client_results import NEVER
from tokenpipe.bench.options import Options
from tokenpipe.bench.shares import make_trace, share_out
from tokenpipe.bench.traces import sample


def test_each_request_goes_to_one_client_and_some_are_cancelled() -> None:
    trace = sample(400, seed=1)
    shares = share_out(trace, 3, 0.25, seed=2)
    assert [len(share) for share in shares] == [134, 133, 133]
    assert shares == share_out(trace, 3, 0.25, seed=2) != share_out(trace, 3, 0.25, seed=3)
    every = [request for share in shares for request in share]
    assert sum(request.output_tokens for request in every) == trace.output_tokens
    cancelled = [request for request in every if request.cancel_at != NEVER]
    assert 60 < len(cancelled) < 140
    assert all(0 <= request.cancel_at < request.output_tokens for request in cancelled)


def test_without_a_rate_no_request_is_cancelled() -> None:
    shares = share_out(sample(400, seed=1), 3, 0.0, seed=2)
    assert {request.cancel_at for share in shares for request in share} == {NEVER}


def test_steps_make_one_request_for_each_slot_of_each_rank() -> None:
    options = Options(dp=3, tp=1, batch=5, steps=7, tokens_per_row=2)
    trace = make_trace(options, options.make_topology())
    assert {arrival.output_tokens for arrival in trace.arrivals} == {14}
    assert {arrival.at_s for arrival in trace.arrivals} == {0.0}
    assert len(trace.arrivals) == 15 and trace.name == "7 steps"


def test_a_file_is_read_and_sped_up(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("timestamp_ms,input_length,output_length\n0,1,2\n9000,3,4\n")
    options = Options(trace=path, speed_up=3.0)
    assert make_trace(options, options.make_topology()).arrivals[1].at_s == pytest.approx(3.0)


def test_otherwise_requests_are_drawn_from_the_sample() -> None:
    options = Options(requests=20, seed=4, arrivals=10.0)
    assert make_trace(options, options.make_topology()) == sample(20, 4, 10.0)
