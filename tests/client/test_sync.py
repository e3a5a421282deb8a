"""The blocking client against an engine behind real sockets."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.client.engine import FakeEngine, fake_engine, only_listen, serve, tokens
from tests.client.frames import Row
from tests.conftest import eventually
from tokenpipe.client import Client
from tokenpipe.errors import LaneClosed, LaneError, LaneLost
from tokenpipe.topology import Topology
from tokenpipe.types import ErrorCode, FinishReason, SamplingParams
from tokenpipe.wire import Cancel, Submit


def test_requests_are_read_in_any_order(runtime_dir: Path) -> None:
    with (
        fake_engine(runtime_dir, serve) as engine,
        Client(engine.endpoint, name="a") as client,
    ):
        streams = [client.generate([1], SamplingParams(max_tokens=30)) for _ in range(20)]
        keys = [m.key for m in engine.heard if isinstance(m, Submit)]
        for i in reversed(range(20)):
            outs = list(streams[i])
            key = engine.heard[i].key
            assert [t for out in outs for t in out.token_ids] == tokens(key, 0, 30)
            assert outs[-1].finish_reason is FinishReason.LENGTH
        assert len(keys) <= 20


def test_samples_and_aborts(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, serve) as engine, Client(engine.endpoint) as client:
        outs = list(client.generate([1], SamplingParams(max_tokens=7, n=3), "r"))
        by_index: dict[int, int] = {}
        for out in outs:
            by_index[out.index] = by_index.get(out.index, 0) + len(out.token_ids)
        assert by_index == {0: 7, 1: 7, 2: 7}
        assert client.abort("r") == 0


@pytest.mark.case("B18")
def test_a_reader_that_pauses_gets_everything(runtime_dir: Path) -> None:
    total = 2000

    def burst(engine: FakeEngine, client: int, message: Submit | Cancel) -> None:
        for at in range(total):
            engine.send(client, Row(message.key, at, tokens(message.key, at, at + 1)))
        engine.send(client, Row(message.key, total, [], 2))

    with fake_engine(runtime_dir, burst) as engine, Client(engine.endpoint) as client:
        stream = client.generate([1], SamplingParams(max_tokens=total))
        assert eventually(lambda: engine.heard and not engine._unsent)
        got = [t for out in stream for t in out.token_ids]
        assert got == tokens(engine.heard[0].key, 0, total)


def test_frames_are_columns_in_order_and_once(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, serve) as engine, Client(engine.endpoint) as client:
        keys = [client.submit([1], SamplingParams(max_tokens=9)) for _ in range(10)]
        got: dict[int, list[int]] = {key: [] for key in keys}
        ended = 0
        while ended < 10:
            for frame in client.frames(timeout_s=5.0):
                at = 0
                for i, key in enumerate(frame.keys.tolist()):
                    count = int(frame.counts[i])
                    assert int(frame.offsets[i]) == len(got[key])
                    got[key] += frame.tokens[at : at + count].tolist()
                    at += count
                    ended += int(frame.finish[i] != 0)
                break  # leaving in the middle of what was read loses nothing
        assert got == {key: tokens(key, 0, 9) for key in keys}
        assert list(client.frames(timeout_s=0.0)) == []
        client.cancel(keys[0])
        assert eventually(lambda: Cancel(keys[0]) in engine.heard)
        with pytest.raises(LaneError, match="use another client for generate"):
            client.generate([1])


def test_the_engines_death_is_an_error_not_a_wait(runtime_dir: Path) -> None:
    with (
        fake_engine(runtime_dir, only_listen) as engine,
        Client(engine.endpoint, name="a") as rows,
        Client(engine.endpoint, name="b") as columns,
    ):
        stream = rows.generate([1])
        columns.submit([1])
        engine.fall_silent()
        died = time.monotonic()
        assert next(stream).error_code is ErrorCode.LOST
        with pytest.raises(LaneLost):
            next(iter(columns.frames()))
        assert time.monotonic() - died < 2.0
        with pytest.raises(LaneLost):
            rows.generate([1])


def test_dropping_a_stream_gives_it_up_with_the_next_call(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, only_listen) as engine, Client(engine.endpoint) as client:
        stream = client.generate([1])
        assert eventually(lambda: engine.heard)
        key = engine.heard[0].key
        del stream
        client.abort("nothing")
        assert eventually(lambda: Cancel(key) in engine.heard)
    with pytest.raises(LaneClosed):
        client.generate([1])


def test_a_prompt_outside_of_the_vocabulary_is_not_sent(runtime_dir: Path) -> None:
    topology = Topology(clients=2, vocab_size=100)
    with (
        fake_engine(runtime_dir, serve, topology) as engine,
        Client(engine.endpoint) as rows,
        Client(engine.endpoint) as columns,
    ):
        for ask in (rows.generate, columns.submit):
            with pytest.raises(ValueError, match="100 is outside of vocab_size 100"):
                ask([5, 100])
        assert len(list(rows.generate([99], SamplingParams(max_tokens=3)))) > 0
        key = columns.submit([99])
        assert eventually(lambda: len(engine.heard) == 2)
        asked = [message for message in engine.heard if isinstance(message, Submit)]
        assert [message.prompt_token_ids for message in asked] == [(99,)] * 2
        assert engine.heard[1].key == key


def test_lists_of_stops_are_taken(runtime_dir: Path) -> None:
    params = SamplingParams(max_tokens=3, stop=["a", "b"], stop_token_ids=[7])
    with fake_engine(runtime_dir, serve) as engine, Client(engine.endpoint) as client:
        assert sum(len(out.token_ids) for out in client.generate([1], params)) == 3
        assert client.counters["cancelled"] == 0


def test_what_cannot_be_opened_or_sent_does_not_run(runtime_dir: Path) -> None:
    with fake_engine(runtime_dir, only_listen) as engine, Client(engine.endpoint) as client:
        with pytest.raises(ValueError, match="no output kind 7"):
            client.generate([1], SamplingParams(output_kind=7), "r")  # type: ignore[arg-type]
        for n in (1, 2):
            with pytest.raises(ValueError, match="surrogates not allowed"):
                client.generate([1], SamplingParams(n=n), "\ud800")
            assert client.abort("\ud800") == client.abort("r") == 0
        assert client.counters["cancelled"] == 0
        kept = client.generate([1], request_id="r")
        assert eventually(lambda: engine.heard) and len(engine.heard) == 1
        assert client.abort("r") == 1
        del kept
