"""A plan of faults: a seed decides all of it, and each kind is in it."""

from __future__ import annotations

import pytest

from tokenpipe.bench.chaos_plan import (
    BEGIN_S,
    LASTING_S,
    QUIET_S,
    FaultKind,
    parse_spec,
    plan_faults,
)
from tokenpipe.errors import ConfigError


def test_all_names_each_kind() -> None:
    assert parse_spec("all") == dict.fromkeys(FaultKind, 1.0)


def test_names_have_weights() -> None:
    assert parse_spec("kill-worker=3, stop-client") == {
        FaultKind.KILL_WORKER: 3.0,
        FaultKind.STOP_CLIENT: 1.0,
    }


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("kill-everybody", "'kill-everybody' is no kind of fault"),
        ("", "'' is no kind"),
        ("kill-worker=0", "'kill-worker=0' must be"),
        ("kill-worker=nan", "'kill-worker=nan' must be"),
        ("kill-worker=often", "'kill-worker=often' must be"),
    ],
)
def test_wrong_spec_is_named(text: str, culprit: str) -> None:
    with pytest.raises(ConfigError, match=culprit):
        parse_spec(text)


def test_ten_minutes_have_a_hundred_faults_of_each_kind() -> None:
    faults = plan_faults(parse_spec("all"), seconds=600.0, every_s=4.0, seed=1)
    assert len(faults) > 100
    assert {fault.kind for fault in faults} == set(FaultKind)
    assert len({fault.kind for fault in faults[: len(FaultKind)]}) == len(FaultKind)
    assert faults[0].at_s == BEGIN_S and faults[-1].at_s < 600.0 - QUIET_S
    assert [f.at_s for f in faults] == sorted(f.at_s for f in faults)
    for fault in faults:
        low, high = LASTING_S.get(fault.kind, (0.0, 0.0))
        assert low <= fault.lasts_s <= high


def test_seed_repeats_the_plan() -> None:
    def plan(seed: int) -> list[object]:
        return list(plan_faults(parse_spec("all"), seconds=60.0, every_s=4.0, seed=seed))

    assert plan(5) == plan(5) != plan(6)


def test_weights_decide_how_often_a_kind_comes() -> None:
    spec = parse_spec("kill-worker=9,stop-client=1")
    faults = plan_faults(spec, seconds=2000.0, every_s=1.0, seed=2)
    kills = sum(fault.kind is FaultKind.KILL_WORKER for fault in faults)
    assert 0.8 < kills / len(faults) < 0.97
