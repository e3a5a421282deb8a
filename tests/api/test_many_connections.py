"""More connections than a process may have descriptors: streams and callers do not notice."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.serve.caller import Caller, open_streams
from tests.serve.raw_http import HEALTH, call, connect, read_all
from tests.serve.running import Running

LIMIT = 256  # descriptors of each process
# `python -m tokenpipe serve` below a hard limit.
LIMITED = f"""
import resource, runpy
resource.setrlimit(resource.RLIMIT_NOFILE, (128, {LIMIT}))
runpy.run_module("tokenpipe", run_name="__main__", alter_sys=True)
"""
TOKENS = 300


@pytest.fixture(params=[1, 2], ids=["one worker", "two workers"])
def server(request: pytest.FixtureRequest, tmp_path: Path, runtime_dir: Path) -> Iterator[Running]:
    command = ("-c", LIMITED, "serve")
    arguments = ("--engine-arg", "rate=50")
    api = {"workers": request.param}
    with Running(tmp_path, runtime_dir, *arguments, command=command, api=api) as running:
        yield running


@pytest.mark.case("F02")
def test_idle_connections_above_the_limit_harm_no_stream(server: Running) -> None:
    streams = [Caller(server, TOKENS) for _ in range(20)]
    assert eventually(lambda: all(stream.tokens for stream in streams), 20.0)
    with ExitStack() as held:
        for _ in range(700):
            held.enter_context(connect(server))
        for _ in range(300):
            held.enter_context(connect(server, HEALTH))
        assert server.post("/v1/completions", {"prompt": [1], "max_tokens": 1}).status_code == 200
        for stream in streams:
            stream.join(60)
            assert (stream.tokens, stream.reason, stream.done) == (TOKENS, "length", True)
        assert server.is_ready()
    (log,) = server.log_dir.glob("api-0.log")
    text = log.read_text()
    assert "Traceback" not in text and "died" not in text
    assert 1 <= text.count("closed to make room") < 20


@pytest.mark.case("F02")
def test_a_connection_above_the_bound_of_busy_ones_gets_a_503(
    tmp_path: Path, runtime_dir: Path
) -> None:
    api = {"max_connections": 4, "timeout_keep_alive": 0.3, "timeout_graceful_shutdown": 0.5}
    with Running(tmp_path, runtime_dir, api=api) as server:
        with connect(server, HEALTH) as idle:
            assert read_all(idle).count(b" 200 ") == 1  # until its time is over
        streams = open_streams(server, 4)
        with connect(server) as sock:
            got = read_all(sock)  # also without a request
        assert b" 503 " in got and b"retry-after: 1" in got and b"no room" in got
        with connect(server, call({"prompt": [1], "max_tokens": 1})) as sock:
            assert b" 503 " in read_all(sock)
        assert server.post("/v1/abort", {"request_id": "none"}).status_code == 503
        flood = [connect(server) for _ in range(60)]
        ends = [_ended(sock) for sock in flood]
        assert ends.count("503") >= 16 and set(ends) <= {"503", "empty", "reset"}
        began = [stream.tokens for stream in streams]
        for stream, tokens in zip(streams, began, strict=True):
            assert eventually(lambda s=stream, t=tokens: s.tokens > t)  # type: ignore[misc]


def _ended(sock: socket.socket) -> str:
    with sock:
        try:
            return "503" if b" 503 " in read_all(sock) else "empty"
        except ConnectionResetError:
            return "reset"
