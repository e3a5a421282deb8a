"""Requests at the edges of HTTP, as bytes to a real server."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.serve.raw_http import HEALTH, call, connect, read_all
from tests.serve.running import Running

TOKENS = 20
ASKED = {"prompt": [TOKENS], "max_tokens": TOKENS}
OFFER = (
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAA\r\n"
)
CLOSE = b"connection: close\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("edges")
    engine = ("--engine", "tests.serve.holding:Holding")
    api = {"timeout_receive": 1.5, "max_body_bytes": 1 << 20}
    with Running(directory, directory, *engine, slots_per_rank=8, api=api) as running:
        yield running


def status_of(raw: bytes) -> int:
    return int(raw.split()[1])


def body_of(raw: bytes) -> Any:
    return json.loads(raw.partition(b"\r\n\r\n")[2])


def answer(sock: socket.socket) -> Any:
    """Read one answer that has a length."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1)
    (length,) = (int(x.split(b":")[1]) for x in head.split(b"\r\n") if b"content-length" in x)
    return json.loads(sock.recv(length, socket.MSG_WAITALL))


@pytest.mark.case("F39")
@pytest.mark.parametrize("pieces", [1, 2, 7, 0], ids=["one", "two", "seven", "at the head's end"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_an_offer_of_h2c_is_ignored_and_the_body_is_read(
    server: Running, chunked: bool, pieces: int
) -> None:
    raw = call(ASKED, more=OFFER)
    head, _, body = raw.partition(b"\r\n\r\n")
    if chunked:
        head = head.replace(b"content-length: %d" % len(body), b"transfer-encoding: chunked")
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    raw = head + b"\r\n\r\n" + body
    size = -(-len(raw) // pieces) if pieces else len(head) + 4
    with connect(server) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(raw), size):
            sock.sendall(raw[at : at + size])
        assert answer(sock)["usage"]["completion_tokens"] == TOKENS
        sock.sendall(HEALTH)  # the connection stays
        assert answer(sock) == {"status": "ok"}


@pytest.mark.case("F39")
def test_other_offers_are_ignored_too_and_a_tunnel_is_refused(server: Running) -> None:
    offer = b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    with connect(server, HEALTH[:-2] + offer + HEALTH) as sock:
        assert answer(sock) == answer(sock) == {"status": "ok"}
    with connect(server, b"CONNECT x:1 HTTP/1.1\r\nhost: x:1\r\n\r\n") as sock:
        assert status_of(read_all(sock)) == 405


@pytest.mark.case("F39")
@pytest.mark.parametrize(
    ("begin", "status"),
    [
        (b"GET /", 414),
        (b"GET / HTTP/1.1\r\nx: ", 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 9, 431),
    ],
    ids=["url", "header", "headers"],
)
def test_a_head_without_an_end_is_refused(server: Running, begin: bytes, status: int) -> None:
    endless = b"a: b\r\n" * 10_923 if begin.endswith(b"\r\n") else b"x" * 65_538
    with connect(server, begin + endless) as sock:
        got = read_all(sock)
    assert status_of(got) == status and CLOSE in got
    assert "65536 bytes" in body_of(got)["error"]["message"]


@pytest.mark.case("F39")
def test_a_body_whose_trailer_has_no_end_is_refused(server: Running) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    with connect(server, head + b"2\r\n{}\r\n0\r\nx: " + b"y" * 400_000) as sock:
        assert status_of(read_all(sock)) == 431


@pytest.mark.case("F39")
def test_a_large_head_with_an_end_is_answered(server: Running) -> None:
    large = HEALTH[:-2] + b"x: " + b"y" * 60_000 + b"\r\n\r\n"
    with connect(server, large * 3) as sock:
        assert [answer(sock) for _ in range(3)] == [{"status": "ok"}] * 3


@pytest.mark.case("F39")
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_http_1_0_gets_no_chunks(server: Running, stream: bool) -> None:
    with connect(server, call({**ASKED, "stream": stream}, version="1.0")) as sock:
        got = read_all(sock)
    head, _, body = got.partition(b"\r\n\r\n")
    assert status_of(got) == 200 and b"chunked" not in head and CLOSE.strip() in head
    if stream:
        events = body.decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""]
        chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == " 7" * TOKENS
    else:
        assert json.loads(body)["usage"]["completion_tokens"] == TOKENS


@pytest.mark.case("F39")
def test_bytes_that_are_no_http_get_an_error_of_openai_s_form(server: Running) -> None:
    with connect(server, b"\x16\x03\x01 hello\r\n\r\n") as sock:
        got = read_all(sock)
    assert status_of(got) == 400 and "not HTTP" in body_of(got)["error"]["message"]


@pytest.mark.case("F39")
def test_bytes_that_are_no_http_behind_a_stream_do_not_harm_it(server: Running) -> None:
    with connect(server, call({**ASKED, "stream": True}) + b"\x00\x01\r\n\r\n") as sock:
        got = read_all(sock)
    stream, _, rest = got.partition(b"\r\n0\r\n\r\n")
    assert stream.endswith(b"data: [DONE]\n\n") and status_of(rest) == 400


@pytest.mark.case("F39")
def test_a_broken_body_is_a_400(server: Running) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    with connect(server, head + b"2\r\n{}\r\nzz\r\n") as sock:
        assert status_of(read_all(sock)) == 400
    assert eventually(server.idle)


@pytest.mark.case("F39")
def test_a_body_that_is_too_large_gets_its_413_while_it_is_sent(server: Running) -> None:
    large = b" " * (8 << 20)
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with connect(server, head + b"content-length: %d\r\n\r\n" % len(large) + large) as sock:
        assert "more than 1048576 bytes" in answer(sock)["error"]["message"]
    chunk = b"%x\r\n%s\r\n" % (len(large), large)
    with connect(server, head + b"transfer-encoding: chunked\r\n\r\n" + chunk) as sock:
        assert "more than 1048576 bytes" in answer(sock)["error"]["message"]


@pytest.mark.case("F02")
@pytest.mark.parametrize("sent", [b"", HEALTH[:9], HEALTH + HEALTH[:9], call(ASKED)[:-3]])
def test_a_request_that_does_not_come_is_given_up(server: Running, sent: bytes) -> None:
    with connect(server, sent) as sock:
        began = time.monotonic()
        got = read_all(sock)
        assert 1.0 < time.monotonic() - began < 8.0
    assert got.count(b" 408 ") == (1 if sent else 0) and got.count(b" 200 ") == (HEALTH in sent)


@pytest.mark.case("F02")
def test_nothing_that_callers_cause_is_a_line_each(server: Running, tmp_path: Path) -> None:
    for _ in range(50):
        with connect(server, b"\x00\r\n\r\n") as sock:
            read_all(sock)
    log = (server.log_dir / "api-0.log").read_text()
    assert "Traceback" not in log and log.count("not HTTP") < 5
