"""How long a request may wait for a rank, by simulated time."""

from __future__ import annotations

from tokenpipe.engine.rank_outages import RankOutages

NONE_CAME = "no worker is up, and none came up within 10 s"


def test_any_rank_that_is_up_lets_requests_wait_for_ever() -> None:
    outages = RankOutages(range(2), 10.0, 0.0)
    outages.up(1)
    assert outages.over(None, 1e9) == ""
    outages.lost(1, 100.0)
    assert outages.over(None, 109.9) == ""
    assert outages.over(None, 110.0) == NONE_CAME
    outages.up(0)
    assert outages.over(None, 1e9) == ""


def test_the_start_counts_as_an_outage() -> None:
    outages = RankOutages(range(2), 10.0, 5.0)
    assert outages.over(None, 14.9) == ""
    assert outages.over(None, 15.0) == NONE_CAME


def test_the_last_rank_that_went_down_counts() -> None:
    outages = RankOutages(range(2), 10.0, 0.0)
    for rank in range(2):
        outages.up(rank)
    outages.lost(0, 100.0)
    outages.lost(1, 107.0)
    outages.lost(0, 116.0)  # it is down already
    assert outages.over(None, 116.9) == ""
    assert outages.over(None, 117.0) == NONE_CAME


def test_a_home_counts_by_itself() -> None:
    outages = RankOutages(range(2), 10.0, 0.0)
    outages.up(0)
    outages.up(1)
    assert outages.over(1, 50.0) == ""
    outages.lost(1, 100.0)
    assert outages.over(1, 109.9) == "" and outages.over(0, 1e9) == ""
    assert (
        outages.over(1, 110.0) == "the worker of rank 1 died, and it did not come back within 10 s"
    )
    outages.up(1)
    assert outages.over(1, 1e9) == ""


def test_without_a_limit_nothing_is_over() -> None:
    outages = RankOutages(range(1), None, 0.0)
    assert outages.over(None, 1e9) == outages.over(0, 1e9) == ""
