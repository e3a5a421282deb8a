"""A rate is kept when steps are late, and begins again after a pause."""

import pytest

from tokenpipe.bench.pace import Pace


def test_a_late_step_makes_the_next_one_due_earlier() -> None:
    pace = Pace(100.0, now=5.0)
    assert pace.wait_s(5.0) == 0.0
    pace.took()
    assert pace.wait_s(5.0) == pytest.approx(0.01)
    assert pace.wait_s(5.5) == 0.0
    pace.took()
    assert pace.wait_s(5.0) == pytest.approx(0.02)


def test_the_steps_of_a_pause_are_not_made_up_for() -> None:
    pace = Pace(100.0, now=5.0)
    pace.restart(9.0)
    pace.took()
    assert pace.wait_s(9.0) == pytest.approx(0.01)
    pace.restart(8.0)
    assert pace.wait_s(9.0) == pytest.approx(0.01)


def test_without_a_rate_a_step_is_always_due() -> None:
    pace = Pace(None, now=5.0)
    pace.took()
    assert pace.wait_s(5.0) == 0.0
