"""Deadlines on a grid that all lanes of a process share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tokenpipe.transport import timing
from tokenpipe.transport.timing import on_grid


@given(st.floats(0, 1e7), st.sampled_from([timing.PROBE_S, timing.PING_S, timing.TAIL_PING_S]))
def test_the_next_moment_is_ahead_by_a_period_at_most(now: float, period: float) -> None:
    due = on_grid(now, period)
    assert now < due <= now + period * (1 + 1e-6)
    assert abs(due / period - round(due / period)) < 1e-5


def test_lanes_that_were_made_at_different_times_are_due_together() -> None:
    assert {on_grid(now, 0.5) for now in (10.0, 10.1, 10.49)} == {10.5}
    assert on_grid(10.5, 0.5) == 11.0


def test_periods_fit_one_another() -> None:
    assert timing.ACK_S < timing.TAIL_PING_S <= timing.RESEND_S < timing.PROBE_S
    assert timing.HELLO_FIRST_S < timing.HELLO_MAX_S and timing.NEVER > 1e18
