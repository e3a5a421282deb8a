"""A client finds the next engine of its instance, and gives up at its deadline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.engine import FakeEngine, fake_engine, only_listen
from tests.client.rig import opened
from tests.conftest import Clock, eventually
from tokenpipe.client.engine_return import POLL_S, RETRY_S, EngineReturn
from tokenpipe.client.lanes import Lanes
from tokenpipe.errors import LaneLost
from tokenpipe.topology import Topology
from tokenpipe.types import SamplingParams
from tokenpipe.wire import Submit

LIKE = 0x1234_5678_9ABC_DEF1


def lanes_of(looking: EngineReturn, clock: Clock) -> Lanes:
    """Step until the lanes are there."""
    found: list[Lanes] = []

    def step() -> bool:
        clock.advance(POLL_S / 10)
        lanes = looking.step()
        if lanes is not None:
            found.append(lanes)
        return lanes is not None

    assert eventually(step)
    return found[0]


def heard(engine: FakeEngine, lanes: Lanes) -> bool:
    """Whether the engine hears what these lanes send."""
    lanes.send([Submit(1, "r", (1,), SamplingParams())])
    return eventually(lambda: len(engine.heard) == 1)


def test_it_attaches_with_keys_that_stay_valid(runtime_dir: Path, clock: Clock) -> None:
    with fake_engine(runtime_dir, only_listen) as engine:
        looking = EngineReturn(engine.endpoint, "a", LIKE, 10.0, "gone", clock)
        lanes = lanes_of(looking, clock)
        try:
            assert lanes.me.incarnation & 0xFFFFFFFF == LIKE & 0xFFFFFFFF
            assert lanes.me.incarnation != LIKE and heard(engine, lanes)
            looking.close()  # the lanes are the caller's
            assert lanes.try_send([])
        finally:
            lanes.close(0.0)


def test_an_engine_that_is_not_there_is_asked_for_again_until_the_deadline(
    runtime_dir: Path, clock: Clock
) -> None:
    looking = EngineReturn(runtime_dir / "it", "a", LIKE, 10.0, "the engine is gone", clock)
    began = clock()
    while clock() - began < 9.8:
        assert looking.step() is None
        assert looking.next_s == pytest.approx(RETRY_S)
        clock.advance(looking.next_s)
    clock.advance(0.3)
    for _ in range(2):
        with pytest.raises(LaneLost, match=r"^the engine is gone; no engine was there within 10 s"):
            looking.step()


def test_a_place_that_is_taken_and_an_engine_that_does_not_answer_are_tried_again(
    runtime_dir: Path, clock: Clock
) -> None:
    topology = Topology(clients=2, timeouts={"startup_s": 2.0})
    with fake_engine(runtime_dir, only_listen, topology) as engine:
        looking = EngineReturn(engine.endpoint, "a", LIKE, 100.0, "gone", clock)
        with opened(engine, "a"):
            assert looking.step() is None and looking.next_s == pytest.approx(RETRY_S)
        clock.advance(RETRY_S)
        engine._silent = True
        assert looking.step() is None and looking.next_s == pytest.approx(POLL_S)
        engine._silent = False
        lanes = lanes_of(looking, clock)
        assert heard(engine, lanes)
        lanes.close(0.0)


def test_an_attempt_that_is_stopped_keeps_no_place(runtime_dir: Path, clock: Clock) -> None:
    with fake_engine(runtime_dir, only_listen, Topology(clients=1)) as engine:
        engine._silent = True
        looking = EngineReturn(engine.endpoint, "a", LIKE, 10.0, "gone", clock)
        assert looking.step() is None
        looking.close()
        engine._silent = False
        with opened(engine, "a") as lanes:
            assert lanes.me.rank == "0"
