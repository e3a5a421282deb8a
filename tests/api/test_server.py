"""A server shuts down: it admits no new call, and open responses end, at the deadline at last."""

from __future__ import annotations

import http.client
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.conftest import eventually
from tests.serve.caller import Caller
from tests.serve.running import Running, descendants, gone

soak = pytest.mark.soak
both = pytest.mark.parametrize("workers", [1, 2], ids=["one worker", "two workers"])


@pytest.mark.case("B52")
@both
def test_open_streams_have_the_grace_and_no_more(
    tmp_path: Path, runtime_dir: Path, workers: int
) -> None:
    api = {"workers": workers, "timeout_graceful_shutdown": 4.0}
    with Running(tmp_path, runtime_dir, api=api) as server:
        host, port = server.url.removeprefix("http://").split(":")
        idle = http.client.HTTPConnection(host, int(port))
        idle.request("GET", "/health")
        idle.getresponse().read()
        endless, short = Caller(server, 1_000_000), Caller(server, 100)  # of 2 s
        assert eventually(lambda: endless.tokens > 5 and short.tokens > 5)
        below = descendants(server.process.pid)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert eventually(
            lambda: server.post("/v1/completions", {"prompt": [1]}).status_code == 503
        )
        refused = server.post("/v1/completions", {"prompt": [1]})
        assert refused.headers["retry-after"] == "1" and "shutting down" in refused.text
        said = httpx.get(f"{server.url}/ready")
        assert said.status_code == 503 and "is shutting down" in said.text
        assert server.process.wait(30) == 0
        took = time.monotonic() - began
        idle.close()
        short.join(10)
        endless.join(10)
    assert short.done and short.tokens == 100 and short.reason == "length"
    assert endless.error["message"] == "the server is shutting down" and not endless.done
    assert 3.5 < endless.ended - began < 6.0 and took < 8.0, (endless.ended - began, took)
    assert all(gone(pid) for pid in below)
    log = (tmp_path / "logs" / "api-0.log").read_text()
    assert log.count("closed its client") == workers  # in the lifespan of each
    assert "Traceback" not in log and "killed" not in log


@pytest.mark.case("B53")
@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=soak)])
def test_delivery_goes_on_while_admission_has_stopped(
    tmp_path: Path, runtime_dir: Path, workers: int
) -> None:
    api = {"workers": workers, "timeout_graceful_shutdown": 20.0}
    with Running(tmp_path, runtime_dir, api=api) as server:
        callers = [Caller(server, 100) for _ in range(20)]
        assert eventually(lambda: all(caller.tokens >= 10 for caller in callers))
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 15  # not the whole grace: it ends with the last answer
    for caller in callers:
        caller.join(10)
        assert (caller.tokens, caller.reason, caller.done) == (100, "length", True)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=soak)])
def test_whole_answers_end_at_the_deadline_too(
    tmp_path: Path, runtime_dir: Path, workers: int
) -> None:
    api = {"workers": workers, "timeout_graceful_shutdown": 0.5}
    with Running(tmp_path, runtime_dir, api=api) as server:
        got: list[httpx.Response] = []
        body = {"prompt": [1], "max_tokens": 1_000_000}
        call = threading.Thread(target=lambda: got.append(server.post("/v1/completions", body)))
        call.start()
        assert eventually(lambda: server.ready()["running"] == 1)
        assert server.stop() == 0
        call.join(10)
    assert got[0].status_code == 503 and "shutting down" in got[0].json()["error"]["message"]
