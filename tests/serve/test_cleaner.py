"""Another program removes files of a running server: nobody dies of it, and they come back."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.serve.caller import Caller
from tests.serve.running import Running
from tests.serve.test_deaths import healed

BACK_S = 5.0


def directory(endpoint: Path) -> None:
    shutil.rmtree(endpoint)


def locks(endpoint: Path) -> None:
    for path in endpoint.glob("*.lock"):
        path.unlink()


def sockets(endpoint: Path) -> None:
    for path in endpoint.iterdir():
        if path.is_socket():
            path.unlink()


def description(endpoint: Path) -> None:
    (endpoint / "instance.json").unlink()


def names(endpoint: Path) -> set[str]:
    found = {path.name for path in endpoint.iterdir()} if endpoint.exists() else set()
    return {name for name in found if not name.endswith(".part")}


def stays_ready(server: Running, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not server.is_ready():
            return False
    return True


@pytest.mark.case("F04")
@pytest.mark.parametrize("remove", [directory, locks, sockets, description])
def test_removed_files_end_no_stream_and_come_back(
    tmp_path: Path, runtime_dir: Path, remove: Callable[[Path], None]
) -> None:
    """Then each process is killed in turn, and its successor finds the others."""
    policies: dict[str, Any] = {"engine": "restart", "restarts": 100}
    with Running(tmp_path, runtime_dir, policies=policies) as server:
        endpoint = runtime_dir / "it"
        before = names(endpoint)
        callers = [Caller(server, 250) for _ in range(10)]
        assert eventually(lambda: all(caller.tokens for caller in callers), 20.0)
        remove(endpoint)
        assert eventually(lambda: names(endpoint) == before, BACK_S), before - names(endpoint)
        assert eventually(server.is_ready, BACK_S), server.ready()
        for caller in callers:
            caller.join(30)
        assert all(caller.tokens == 250 for caller in callers), [c.error for c in callers]
        assert stays_ready(server, 1.0), server.ready()
        for title in ("tp:worker 0.0", "tp:processor 0", "tp:engine 0"):
            victim = server.pid(title)
            os.kill(victim, signal.SIGKILL)
            assert eventually(lambda v=victim: healed(server, v), 30.0), server.ready()  # type: ignore[misc]
            assert eventually(server.is_ready, BACK_S), server.ready()
            assert all_right(server)
    assert server.process.returncode == 0 and not endpoint.exists()


def all_right(server: Running) -> bool:
    callers = [Caller(server, 20) for _ in range(10)]
    for caller in callers:
        caller.join(20)
    assert all(caller.tokens == 20 for caller in callers), [c.error for c in callers]
    return True


@pytest.mark.case("F04")
@pytest.mark.parametrize("remove", [directory, sockets])
def test_a_processor_that_starts_just_then_leaves_no_request_without_an_answer(
    tmp_path: Path, runtime_dir: Path, remove: Callable[[Path], None]
) -> None:
    with Running(tmp_path, runtime_dir) as server:
        remove(runtime_dir / "it")
        victim = server.pid("tp:processor 0")
        os.kill(victim, signal.SIGKILL)
        callers = [Caller(server, 20) for _ in range(10)]
        for caller in callers:
            caller.join(20)
        assert all(caller.tokens == 20 or caller.error or caller.failed for caller in callers)
        assert eventually(server.is_ready, 20.0), server.ready()
        assert eventually(lambda: healed(server, victim), 20.0), server.ready()
        assert all_right(server)
