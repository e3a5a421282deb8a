"""What a client's core has to say goes to its engine, as far as the lane takes it, in order."""

from __future__ import annotations

from pathlib import Path

from tests.client.engine import fake_engine, only_listen
from tests.client.rig import Kept, core_of, opened
from tests.conftest import eventually
from tokenpipe.client.send_outgoing import send_outgoing
from tokenpipe.errors import LaneLost
from tokenpipe.topology import Topology
from tokenpipe.types import ErrorCode, SamplingParams
from tokenpipe.wire import Cancel


def test_nothing_to_say_sends_nothing(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, only_listen) as engine, opened(engine) as lanes:
        send_outgoing(lanes, core_of(lanes))
        assert lanes.sent == 0 and engine.heard == []


def test_many_messages_are_few_frames_in_the_order_of_their_making(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, only_listen) as engine, opened(engine) as lanes:
        core = core_of(lanes)
        streams = core.open(core.expand([1], SamplingParams(n=5000)))
        for stream in streams:
            stream.drop()
        send_outgoing(lanes, core)
        assert lanes.sent == 2 and core.take_outgoing() == []
        assert eventually(lambda: len(engine.heard) == 5000)
        assert engine.heard == [Cancel(stream.key) for stream in streams]


def test_each_request_has_a_frame_and_one_that_fits_in_none_ends(runtime_dir: Path) -> None:
    topology = Topology(clients=1, bounds={"lane_bytes": 1 << 16, "max_frame_bytes": 1 << 15})
    with fake_engine(runtime_dir, only_listen, topology) as engine, opened(engine) as lanes:
        core = core_of(lanes, restarts=True)
        sizes = (3, 20_000, 4)
        submits = [core.expand(range(size), SamplingParams())[0] for size in sizes]
        streams = core.open(submits)
        core.engine_lost(LaneLost("gone"))
        core.engine_back()
        core.abort(submits[2].external_id)
        send_outgoing(lanes, core)
        assert lanes.sent == 3 and core.take_outgoing() == []
        assert eventually(lambda: len(engine.heard) == 3)
        assert engine.heard == [submits[0], submits[2], Cancel(submits[2].key)]
        item = streams[1].take()
        assert item is not None and item.error_code is ErrorCode.INVALID and item.error


def test_what_the_lane_does_not_take_waits_for_the_next_time(runtime_dir: Path) -> None:
    topology = Topology(clients=1, bounds={"lane_bytes": 1 << 17, "max_frame_bytes": 1 << 17})
    with fake_engine(runtime_dir, only_listen, topology) as engine, opened(engine) as lanes:
        engine._silent = True
        core = core_of(lanes)
        streams = core.open(core.expand([1], SamplingParams(n=20_000)))
        for stream in streams:
            stream.drop()
        send_outgoing(lanes, core)
        sent = lanes.sent
        assert 0 < sent < 5
        send_outgoing(lanes, core)
        assert lanes.sent == sent
        engine._silent = False

        def all_heard() -> bool:
            Kept().read(lanes)
            send_outgoing(lanes, core)
            return len(engine.heard) == 20_000

        assert eventually(all_heard)
        assert engine.heard == [Cancel(stream.key) for stream in streams]
