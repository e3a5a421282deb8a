"""A request runs only where somebody can read its output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.client.engine import fake_engine, only_listen
from tests.client.rig import core_of, opened
from tests.conftest import eventually
from tokenpipe.client import Client
from tokenpipe.client.send_outgoing import send_outgoing
from tokenpipe.client.sending import send_requests
from tokenpipe.errors import FrameTooLarge
from tokenpipe.topology import Topology
from tokenpipe.types import SamplingParams
from tokenpipe.wire import Cancel, Message


def test_a_stream_for_each_request_that_was_sent(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, only_listen) as engine, opened(engine) as lanes:
        core = core_of(lanes)
        submits = core.expand([1, 2], SamplingParams(n=3), "r")
        streams = send_requests(lanes, core, submits)
        assert [stream.key for stream in streams] == [submit.key for submit in submits]
        assert [stream.index for stream in streams] == [0, 1, 2] and lanes.sent == 1
        assert eventually(lambda: engine.heard == submits)


def test_what_no_stream_can_have_is_not_sent(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, only_listen) as engine, opened(engine) as lanes:
        core = core_of(lanes)
        wrong = core.expand([1], SamplingParams(output_kind=7), "r")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="no output kind 7"):
            send_requests(lanes, core, wrong)
        assert lanes.sent == len(core) == core.abort("r") == 0


def test_what_cannot_be_sent_is_forgotten_and_the_engine_hears_nothing(runtime_dir: Path) -> None:
    topology = Topology(clients=1, bounds={"lane_bytes": 1 << 16, "max_frame_bytes": 1 << 15})
    with fake_engine(runtime_dir, only_listen, topology) as engine, opened(engine) as lanes:
        core = core_of(lanes)
        with pytest.raises(FrameTooLarge):
            send_requests(lanes, core, core.expand(range(10_000), SamplingParams(n=2), "r"))
        assert lanes.sent == len(core) == core.abort("r") == 0
        assert core.take_outgoing() == []
        (kept,) = send_requests(lanes, core, core.expand([1], SamplingParams(), "r"))
        assert eventually(lambda: len(engine.heard) == 1) and core.abort("r") == 1
        assert engine.heard[0].key == kept.key


@pytest.mark.case("F07")
def test_a_client_judges_by_the_bounds_of_its_topology(runtime_dir: Path) -> None:
    topology = Topology(clients=1, bounds={"lane_bytes": 1 << 16, "max_frame_bytes": 1 << 15})
    with fake_engine(runtime_dir, only_listen, topology) as engine:
        with Client(engine.endpoint) as client:
            for call in (client.generate, client.submit):
                with pytest.raises(ValueError, match=r"^prompt_logprobs: 20 for 1000 token\(s\)"):
                    call(range(1000), SamplingParams(prompt_logprobs=20))
                with pytest.raises(ValueError, match=r"^logprobs: 5000 for 1 token\(s\)"):
                    call([1], SamplingParams(logprobs=5000))
                with pytest.raises(ValueError, match=r"^prompt_token_ids: 9000 tokens"):
                    call(range(9000))
                with pytest.raises(ValueError, match=r"^n: 5 samples of 8512 bytes"):
                    call(range(2000), SamplingParams(n=5))
            assert client.submit([1]) and eventually(lambda: len(engine.heard) == 1)


def test_a_request_that_was_sent_before_an_exception_is_cancelled(runtime_dir: Path) -> None:
    """The handler of a signal raises right behind the sending, wherever that is."""
    with fake_engine(runtime_dir, only_listen) as engine, opened(engine) as lanes:
        core = core_of(lanes)
        sent = lanes.send

        def send_and_raise(messages: Sequence[Message]) -> None:
            sent(messages)
            raise KeyboardInterrupt

        lanes.send = send_and_raise  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            send_requests(lanes, core, core.expand([1], SamplingParams(n=2), "r"))
        lanes.send = sent  # type: ignore[method-assign]
        assert len(core) == core.abort("r") == 0
        send_outgoing(lanes, core)
        assert eventually(lambda: len(engine.heard) == 4)
        keys = [message.key for message in engine.heard[:2]]
        assert engine.heard[2:] == [Cancel(key) for key in keys]
