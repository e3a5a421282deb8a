"""A client's lanes: what they bring goes to its sink, what is gone is told, and messages leave."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.client.engine import FakeEngine, fake_engine, only_listen
from tests.client.frames import Row
from tests.client.rig import Kept, opened
from tests.conftest import eventually
from tokenpipe.client.lanes import Lanes
from tokenpipe.errors import LaneFull, LaneLost
from tokenpipe.instance import output_lane
from tokenpipe.topology import Topology
from tokenpipe.types import SamplingParams
from tokenpipe.wire import Cancel, OutputFrame, Submit

TWO = Topology(clients=1, data_parallel_size=2, processors={"count": 2})


def close(engine: FakeEngine) -> None:
    engine._outputs[0][1].close(0.0)


def read_until(kept: Kept, lanes: Lanes, count: int) -> list[list[int]]:
    """Read until so many frames came; returns their keys."""

    def there() -> bool:
        kept.read(lanes)
        lanes.applied()
        return len(kept.frames) >= count

    assert eventually(there)
    return [OutputFrame.unpack(frame).keys.tolist() for frame in kept.frames]


def test_frames_of_every_source_come_in_the_order_of_each(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, only_listen, TWO) as engine, opened(engine) as lanes:
        for number in range(1, 31):
            for source, first in ((0, 0), (1, 100), (-1, 200)):
                engine.call(partial(engine.send, 0, Row(first + number, 0), source=source))
        keys = [key for (key,) in read_until(Kept(), lanes, 90)]
        for first in (0, 100, 200):
            mine = [key for key in keys if first < key < first + 100]
            assert mine == list(range(first + 1, first + 31))


def test_a_read_takes_about_as_many_as_it_may_and_says_whether_more_are_there(
    runtime_dir: Path,
) -> None:
    with fake_engine(runtime_dir, only_listen) as engine, opened(engine) as lanes:
        sent = [False]

        def send() -> None:
            for number in range(10):
                engine.send(0, Row(number + 1, 0))
            engine.call(lambda: sent.__setitem__(0, True))

        engine.call(send)
        assert eventually(lambda: sent[0]) and lanes.waiter.wait(5.0)
        kept, more = Kept(), True
        sizes = []
        while more or len(kept.frames) < 10:
            before = len(kept.frames)
            more = kept.read(lanes, limit=3)
            sizes.append(len(kept.frames) - before)
        assert max(sizes) == 3 and len(kept.frames) == 10


def test_the_death_of_a_processor_is_told_and_is_no_end(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, only_listen, TWO) as engine, opened(engine) as lanes:
        kept = Kept()
        engine.call(partial(engine.send, 0, Row(1, 0), source=1))
        read_until(kept, lanes, 1)
        engine.call(partial(close, engine))
        assert eventually(lambda: kept.read(lanes) or kept.sources_lost == 1)
        assert kept.errors == []
        engine.call(partial(engine.send, 0, Row(2, 0), source=0))
        read_until(kept, lanes, 2)


def test_the_death_of_the_engine_is_an_end_and_says_why(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, only_listen) as engine, opened(engine) as lanes:
        kept = Kept()
        engine.call(partial(engine.send, 0, Row(1, 0), source=-1))
        read_until(kept, lanes, 1)
        engine.fall_silent()
        assert eventually(lambda: kept.read(lanes) or len(kept.errors) > 0)
        assert isinstance(kept.errors[0], LaneLost)
        assert str(kept.errors[0]).startswith("the engine is gone: ")


def test_frames_that_nobody_has_any_more_are_a_gap_of_that_lane(runtime_dir: Path) -> None:
    def lose(engine: FakeEngine) -> None:
        window = engine._outputs[0][0].window
        window.push(b"\x00" * 64)
        window.ack(window.next_seq - 1)  # it is let go, and was never sent

    with fake_engine(runtime_dir, only_listen) as engine, opened(engine) as lanes:
        kept = Kept()
        engine.call(partial(engine.send, 0, Row(1, 0)))
        read_until(kept, lanes, 1)
        engine.call(partial(lose, engine))
        engine.call(partial(engine.send, 0, Row(2, 0)))
        assert read_until(kept, lanes, 2) == [[1], [2]]
        assert kept.gaps == [output_lane(0, 0)] and kept.errors == []
        assert lanes.counters[output_lane(0, 0)]["gap"] == 1


def test_messages_are_sent_in_order_and_counted(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, only_listen) as engine, opened(engine) as lanes:
        assert lanes.sent == 0
        lanes.send([Cancel(1), Cancel(2)])
        assert lanes.try_send([Cancel(3)]) and lanes.sent == 2
        assert eventually(lambda: len(engine.heard) == 3)
        assert engine.heard == [Cancel(1), Cancel(2), Cancel(3)]
        with pytest.raises(ValueError, match=r"Cancel\.key"):
            lanes.send([Cancel(-1)])
        assert lanes.sent == 2  # what cannot be sent takes no number


def test_a_full_lane_refuses_and_takes_again_when_it_was_read(runtime_dir: Path) -> None:
    topology = Topology(clients=1, bounds={"lane_bytes": 1 << 16, "max_frame_bytes": 1 << 15})
    with fake_engine(runtime_dir, only_listen, topology) as engine, opened(engine) as lanes:
        engine._silent = True
        prompt = tuple(range(5000))
        submit = [Submit(1, "r", prompt, SamplingParams())]
        while lanes.try_send(submit):
            pass
        sent = lanes.sent
        with pytest.raises(LaneFull):
            lanes.send(submit)
        assert lanes.sent == sent
        engine._silent = False
        assert eventually(lambda: Kept().read(lanes) or lanes.try_send(submit))
        assert eventually(lambda: len(engine.heard) == sent + 1)


def test_closing_returns_what_nobody_confirmed(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, only_listen) as engine:
        with opened(engine) as lanes:
            lanes.send([Cancel(1)])
            assert eventually(lambda: len(engine.heard) == 1)
            assert lanes.close(5.0) == 0
        assert eventually(lambda: engine.gone == [0])
        with opened(engine) as lanes:  # its place is free again
            engine._silent = True
            lanes.send([Cancel(2)])
            assert lanes.close(0.0) == 1
        engine._silent = False
