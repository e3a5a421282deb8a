"""Callers that leave, or that only stop sending, seen by a real server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.serve.caller import Caller
from tests.serve.raw_http import HEALTH, call, connect, read_all, reset
from tests.serve.running import Running

ENDLESS = 1_000_000
LEAVE = {"FIN": socket.socket.close, "RST": reset}
LEFT_S = 2.0  # the server learns of it in less than one second; the rest is for a busy machine


@pytest.fixture(scope="module", params=[1, 2], ids=["one worker", "two workers"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("connection")
    engine = ("--engine", "tests.serve.holding:Holding")
    api = {"workers": request.param}
    with Running(directory, directory, *engine, slots_per_rank=40, api=api) as running:
        yield running


def stream_of(tokens: int, version: str = "1.1") -> bytes:
    """Return a call whose stream gets so many tokens, and then nothing more."""
    return call({"prompt": [tokens], "max_tokens": ENDLESS, "stream": True}, version=version)


def running(server: Running) -> int:
    return int(server.ready()["running"])


@pytest.mark.case("F01")
@pytest.mark.parametrize("behind", [HEALTH, stream_of(0), b""], ids=["health", "stream", "none"])
@pytest.mark.parametrize("how", LEAVE)
@pytest.mark.parametrize(("when", "tokens"), [("before", 0), ("at", 1), ("after", ENDLESS)])
def test_a_leaver_frees_its_slot_whatever_it_sent_behind(
    server: Running, when: str, tokens: int, how: str, behind: bytes
) -> None:
    callers = [connect(server, stream_of(tokens) + behind) for _ in range(4)]
    assert eventually(lambda: running(server) == 4), server.ready()
    for sock in callers:
        if when != "before":
            read = b""
            while read.count(b"data: ") < (1 if when == "at" else 5):
                read += sock.recv(65536)
    for sock in callers:
        LEAVE[how](sock)
    assert eventually(server.idle, LEFT_S), server.ready()


@pytest.mark.case("F01")
def test_a_whole_answer_is_given_up_when_its_pipelining_caller_leaves(server: Running) -> None:
    whole = call({"prompt": [5], "max_tokens": ENDLESS})
    for how in LEAVE.values():
        sock = connect(server, whole + HEALTH)
        assert eventually(lambda: running(server) == 1)
        how(sock)
        assert eventually(server.idle, LEFT_S), server.ready()


@pytest.mark.case("F01")
@pytest.mark.parametrize("how", LEAVE)
def test_32_pipelined_leavers_harm_no_stream(server: Running, how: str) -> None:
    streams = [Caller(server, 100, prompt=[100]) for _ in range(8)]
    leavers = [connect(server, stream_of(i % 3) + HEALTH) for i in range(32)]
    assert eventually(lambda: running(server) > 30)
    for sock in leavers:
        LEAVE[how](sock)
    for stream in streams:
        stream.join(30)
        assert (stream.tokens, stream.reason, stream.done) == (100, "length", True)
    assert eventually(server.idle, LEFT_S), server.ready()
    again = Caller(server, 3, prompt=[3])
    again.join(10)
    assert again.done


@pytest.mark.case("F28")
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_caller_that_only_stops_sending_gets_its_answers(server: Running, stream: bool) -> None:
    asked = call({"prompt": [50], "max_tokens": 50, "stream": stream})
    for sent, answers in ((asked, 1), (asked + asked, 2)):
        with connect(server, sent) as sock:
            sock.shutdown(socket.SHUT_WR)
            got = read_all(sock)
        assert got.count(b"HTTP/1.1 200 OK") == answers
        assert (
            got.count(b'"finish_reason": "length"' if stream else b'"total_tokens": 51') == answers
        )
        assert got.count(b"data: [DONE]") == answers * stream
    assert eventually(server.idle, LEFT_S), server.ready()


def test_a_request_that_will_never_be_whole_is_given_up(server: Running) -> None:
    with connect(server, call({"prompt": [5]})[:-3]) as sock:
        sock.shutdown(socket.SHUT_WR)
        assert read_all(sock) == b""


@pytest.mark.case("F01")
def test_nothing_of_it_is_logged_as_an_error(server: Running, tmp_path: Path) -> None:
    (log,) = server.log_dir.glob("api-*.log")
    assert "Traceback" not in log.read_text() and "raised exception" not in log.read_text()
