"""Serve in one process: the status of its end, and whom it tells why it did not start."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.api.pipeline_thread import pipeline
from tests.conftest import eventually
from tokenpipe.api.owner import StoppableServer
from tokenpipe.api.settings import ApiSettings
from tokenpipe.api.single import run
from tokenpipe.errors import StartupError
from tokenpipe.notify import Notifier
from tokenpipe.topology import Topology


class Owner:
    """Has the server, for the test to shut it down."""

    def __init__(self) -> None:
        self.server: StoppableServer | None = None
        self.notes: list[str] = []

    def begins(self, server: StoppableServer) -> None:
        self.server = server

    def __enter__(self) -> None:
        self.notes.append("enter")

    def __exit__(self, *_: object) -> None:
        self.notes.append("exit")


def settings(endpoint: Path, sock: socket.socket, patience_s: float) -> ApiSettings:
    fd = os.dup(sock.fileno())  # the server closes it
    deadline = time.monotonic() + patience_s
    return ApiSettings(Topology(), str(endpoint), fd, True, deadline, Notifier(None))


def test_a_start_without_an_engine_is_the_owners_startup_error(tmp_path: Path) -> None:
    owner = Owner()
    with socket.create_server(("127.0.0.1", 0)) as sock:
        with pytest.raises(StartupError, match="LaneLost: there is no instance"):
            run(settings(tmp_path / "none", sock, -1.0), owner)
    assert owner.notes == ["enter", "exit"] and owner.server is not None


def test_an_owner_ends_the_server_that_it_was_given(runtime_dir: Path) -> None:
    owner = Owner()
    with pipeline(runtime_dir) as endpoint, socket.create_server(("127.0.0.1", 0)) as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        status: list[int] = []
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        thread = threading.Thread(
            target=lambda: status.append(run(settings(endpoint, sock, 20), owner))
        )
        thread.start()
        assert eventually(lambda: owner.server is not None and owner.server.started, 20.0)
        assert httpx.get(f"{url}/health", verify=False).status_code == 200
        assert owner.server is not None
        server = owner.server
        loop = server._loop  # type: ignore[attr-defined]
        loop.call_soon_threadsafe(server.begin_shutdown)
        thread.join(20)
        assert status == [0] and owner.notes == ["enter", "exit"]
        assert before == {number: signal.getsignal(number) for number in before}
