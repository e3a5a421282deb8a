"""The end of a server: admission stops, delivery goes on to its end or the deadline."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import eventually
from tests.serve.running import Running, descendants, gone

soak = pytest.mark.soak
flavours = pytest.mark.parametrize("workers", [1, 2], ids=["one worker", "two workers"])


class Caller(threading.Thread):
    """A streamed call; keeps its tokens, its last event and when that came."""

    def __init__(self, server: Running, tokens: int) -> None:
        super().__init__()
        self._server, self._asked = server, tokens
        self.tokens = 0
        self.reason: str | None = None
        self.error: dict[str, Any] = {}
        self.done = False
        self.failed = ""
        self.ended = 0.0
        self.start()

    def run(self) -> None:
        body = {
            "prompt": [1],
            "max_tokens": self._asked,
            "stream": True,
            "return_token_ids": True,
        }
        try:
            url = f"{self._server.url}/v1/completions"
            # A client each, and no time spent on reading the certificates that it does not need.
            with httpx.stream("POST", url, json=body, timeout=60, verify=False) as answer:
                for line in answer.iter_lines():
                    self._take(line.removeprefix("data: "))
        except httpx.HTTPError as error:
            self.failed = repr(error)
        self.ended = time.monotonic()

    def _take(self, data: str) -> None:
        if data == "[DONE]":
            self.done = True
        elif data:
            event = json.loads(data)
            self.error = event.get("error", {})
            for choice in event.get("choices", ()):
                self.tokens += len(choice["token_ids"])
                self.reason = choice["finish_reason"]


@pytest.mark.case("B52")
@flavours
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
    assert log.count("closed its client") == workers  # the lifespan's clean-up, in both flavours
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


@pytest.mark.case("B47")
@pytest.mark.parametrize("first", [pytest.param(signal.SIGTERM, marks=soak), signal.SIGINT])
def test_second_signal_ends_at_once_and_leaves_nothing(
    tmp_path: Path, runtime_dir: Path, first: signal.Signals
) -> None:
    api = {"workers": 2, "timeout_graceful_shutdown": 60.0}
    with Running(tmp_path, runtime_dir, api=api) as server:
        endless = Caller(server, 1_000_000)
        assert eventually(lambda: endless.tokens)
        below = descendants(server.process.pid)
        server.process.send_signal(first)
        assert eventually(lambda: "stops: " in server.output())
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) == 128 + signal.SIGINT
        assert eventually(lambda: all(gone(pid) for pid in below), 5.0)
        endless.join(10)
    assert not list(runtime_dir.iterdir())
