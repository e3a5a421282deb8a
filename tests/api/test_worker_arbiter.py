"""A worker that cannot start is a death under the budget; its siblings serve on."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.serve.caller import Caller, open_streams
from tests.serve.running import Running, gone


def whole(callers: list[Caller]) -> bool:
    """Whether there are streams, and each one gets tokens or has ended."""
    before = [caller.tokens for caller in callers]
    pairs = list(zip(callers, before, strict=True))
    moved = eventually(lambda: all(c.tokens > n or not c.is_alive() for c, n in pairs))
    return moved and any(caller.is_alive() for caller in callers)


def leave(pid: int, spare: int | None) -> None:
    """Leave a process, and its later forks, so many further descriptors; None: nearly none."""
    used = {int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}
    free = [number for number in range(1024) if number not in used]
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3 if spare is None else free[spare], hard))


def fill_disk(manager: int) -> None:
    _, hard = resource.prlimit(manager, resource.RLIMIT_FSIZE)
    resource.prlimit(manager, resource.RLIMIT_FSIZE, (0, hard))


@pytest.mark.case("F06")
@pytest.mark.parametrize(
    ("shorten", "sign"),
    [
        pytest.param(fill_disk, "", id="full disk"),
        pytest.param(lambda pid: leave(pid, None), "an API worker cannot be started", id="no fork"),
        pytest.param(lambda pid: leave(pid, 1), "could not start; restart", id="no start"),
    ],
)
def test_a_worker_that_cannot_start_ends_no_sibling(
    tmp_path: Path, runtime_dir: Path, shorten: Callable[[int], None], sign: str
) -> None:
    with Running(tmp_path, runtime_dir, api={"workers": 2}) as server:
        callers = open_streams(server, 16)
        manager, victim, sibling = server.pids("tp:api")
        files = resource.prlimit(manager, resource.RLIMIT_NOFILE)
        sizes = resource.prlimit(manager, resource.RLIMIT_FSIZE)
        shorten(manager)
        os.kill(victim, signal.SIGKILL)
        assert eventually(lambda: gone(victim))
        assert eventually(lambda: sum(c.is_alive() for c in callers) < 16)
        assert eventually(lambda: sign in said(server), 20.0), said(server)
        assert whole(callers) and not gone(sibling)
        for what, limits in ((resource.RLIMIT_NOFILE, files), (resource.RLIMIT_FSIZE, sizes)):
            for pid in server.pids("tp:api"):
                resource.prlimit(pid, what, limits)
        assert eventually(lambda: said(server).count("startup complete") == 3, 20.0), said(server)
        assert eventually(lambda: len(server.pids("tp:api")) == 3 and server.is_ready(), 20.0)
        assert whole(callers) and not gone(sibling) and server.pid("tp:api 0") == manager


def said(server: Running) -> str:
    return (server.log_dir / "api-0.log").read_text()
