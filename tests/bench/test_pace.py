"""A rate is kept over late turns and pauses."""

import pytest

from tokenpipe.bench.pace import Pace


def test_makes_up_for_late_turns() -> None:
    pace = Pace(100.0, now=5.0)
    assert pace.wait_s(5.0) == 0.0
    pace.took()
    assert pace.wait_s(5.0) == pytest.approx(0.01)
    assert pace.wait_s(5.5) == 0.0
    pace.took()
    assert pace.wait_s(5.0) == pytest.approx(0.02)


def test_owes_nothing_for_a_pause() -> None:
    pace = Pace(100.0, now=5.0)
    pace.restart(9.0)
    pace.took()
    assert pace.wait_s(9.0) == pytest.approx(0.01)
    pace.restart(8.0)
    assert pace.wait_s(9.0) == pytest.approx(0.01)


def test_without_a_rate_it_is_always_time() -> None:
    pace = Pace(None, now=5.0)
    pace.took()
    assert pace.wait_s(5.0) == 0.0
