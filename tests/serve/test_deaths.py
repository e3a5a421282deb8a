"""Any process of a running server dies or stops: everybody hears of it, nothing is left."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import eventually
from tests.serve.caller import Caller, open_streams
from tests.serve.running import HELD, Running, descendants, gone, sweep
from tokenpipe.instance import HEALTH_FILE

soak = pytest.mark.soak
NOTICED_S = 2.0
USED_UP = "it is not started again: all 1 restart(s) within 60 s are used up"
RESTART: dict[str, Any] = {"engine": "restart", "restarts": 1000}


def healed(server: Running, victim: int) -> bool:
    """Whether all roles live and calls are answered, a while after one was killed."""
    titles = ("tp:engine", "tp:processor", "tp:worker", "tp:api 0")
    living = server.pids()
    if victim in living or not all(server.pids(title) for title in titles):
        return False
    try:
        return server.post("/v1/completions", {"prompt": [1], "max_tokens": 1}).status_code == 200
    except httpx.HTTPError:
        return False


def goes_on(caller: Caller) -> bool:
    """Whether a stream gets tokens again, or else has ended."""
    before = caller.tokens
    assert eventually(lambda: caller.tokens > before or not caller.is_alive())
    return caller.is_alive()


def all_hear_of_it(callers: list[Caller], died: float) -> None:
    for caller in callers:
        caller.join(20)
        assert caller.error and not caller.failed, (caller.error, caller.failed)
        assert caller.ended - died < NOTICED_S


@pytest.mark.case("B45")
@pytest.mark.case("B47")
def test_the_engines_death_ends_streams_turns_red_and_green_again(
    tmp_path: Path, runtime_dir: Path
) -> None:
    """The next engine is held back until all has been seen."""
    title = "tp:engine 0"
    (tmp_path / "sitecustomize.py").write_text(HELD.format(module="tokenpipe.engine"))
    arguments = ("--engine-arg", "rate=10")
    with Running(tmp_path, runtime_dir, *arguments, policies=RESTART) as server:
        callers = open_streams(server, 50)
        api, victim = server.pid("tp:api 0"), server.pid(title)
        died = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        all_hear_of_it(callers, died)
        assert {caller.error["type"] for caller in callers} == {"service_unavailable"}
        assert eventually(server.is_down, NOTICED_S), server.ready()  # a new call gets a 503
        assert "api 0" in server.ready()["problems"], server.ready()
        (tmp_path / "go").touch()
        assert eventually(lambda: healed(server, victim), 30.0), server.ready()
        assert eventually(server.is_ready, 30.0), server.ready()
        assert server.pid("tp:api 0") == api and server.pid(title) != victim
    assert server.process.returncode == 0


@pytest.mark.case("B45")
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=soak)])
def test_a_killed_processor_ends_no_stream(tmp_path: Path, runtime_dir: Path, ranks: int) -> None:
    keys: dict[str, Any] = {"data_parallel_size": ranks, "processors": {"count": ranks}}
    with Running(tmp_path, runtime_dir, policies=RESTART, **keys) as server:
        callers = [Caller(server, 150) for _ in range(50)]
        assert eventually(lambda: all(caller.tokens for caller in callers), 20.0)
        os.kill(server.pid("tp:processor 0"), signal.SIGKILL)
        for caller in callers:
            caller.join(30)
        assert [(c.done, c.tokens, c.error, c.failed) for c in callers] == [
            (True, 150, {}, "")
        ] * 50
        assert eventually(server.is_ready, 30.0)


@pytest.mark.case("B45")
@pytest.mark.parametrize("lost_rank", ["move", "end"])
def test_other_ranks_go_on(tmp_path: Path, runtime_dir: Path, lost_rank: str) -> None:
    """Streams of the lost rank continue on the one that is left, or end where told so."""
    policies = {**RESTART, "lost_rank": lost_rank}
    keys: dict[str, Any] = {"data_parallel_size": 2, "policies": policies}
    with Running(tmp_path, runtime_dir, **keys) as server:
        callers = [Caller(server, 150) for _ in range(10)]
        assert eventually(lambda: all(caller.tokens for caller in callers), 20.0)
        died = time.monotonic()
        os.kill(server.pid("tp:worker 0.0"), signal.SIGKILL)
        for caller in callers:
            caller.join(30)
        lost = [caller for caller in callers if not caller.done]
        most = 5 if lost_rank == "end" else 0  # a slow machine's first callers are done by then
        assert min(most, 1) <= len(lost) <= most, [caller.error for caller in lost]
        all_hear_of_it(lost, died)
        assert all("the worker that ran it was lost" in caller.error["message"] for caller in lost)
        assert all(caller.tokens == 150 for caller in callers if caller.done)
        assert eventually(server.is_ready, 30.0)


@pytest.mark.case("B47")
def test_engine_that_is_not_started_again_ends_the_server(
    tmp_path: Path, runtime_dir: Path
) -> None:
    with Running(tmp_path, runtime_dir) as server, server.client() as client:
        (caller,) = open_streams(server, 1)
        below = descendants(server.process.pid)
        died = time.monotonic()
        os.kill(server.pid("tp:engine 0"), signal.SIGKILL)
        all_hear_of_it([caller], died)
        with pytest.raises(openai.APIError):
            client.completions.create(model="tokenpipe", prompt=[1])
        assert server.process.wait(15) == 1
        assert all(gone(pid) for pid in below)
    assert "engine 0 (pid" in server.output() and "died by SIGKILL" in server.output()
    assert "policies.engine is fail" in server.output()


@pytest.mark.case("B47")
@pytest.mark.parametrize(
    ("title", "policies", "said"),
    [
        ("tp:worker 0.0", {"worker": "fail"}, "policies.worker is fail"),
        pytest.param("tp:worker 0.0", {"restarts": 1}, USED_UP, marks=soak),
        pytest.param("tp:api 0", {"api": "fail"}, "policies.api is fail", marks=soak),
        ("tp:api 0", {"restarts": 1}, USED_UP),
        ("tp:api 1", {"api": "fail"}, "policies.api is fail"),
        ("tp:processor 0", {"processor": "fail"}, "policies.processor is fail"),
    ],
)
def test_policy_that_gives_up_says_so(
    tmp_path: Path, runtime_dir: Path, title: str, policies: dict[str, Any], said: str
) -> None:
    api = {"workers": 2 if title == "tp:api 1" else 1}
    with Running(tmp_path, runtime_dir, policies=policies, api=api) as server:
        while server.process.poll() is None:
            for pid in server.pids(title):
                os.kill(pid, signal.SIGKILL)
                assert eventually(lambda pid=pid: gone(pid))  # type: ignore[misc]
            eventually(lambda: server.pids(title) or server.process.poll() is not None)
        assert server.process.returncode == 1
    assert said in server.output()
    # How a forked worker ended is for the manager to log.
    assert "died by SIGKILL" in server.output() or title == "tp:api 1"


@pytest.mark.case("B45")
@pytest.mark.parametrize(
    "process",
    ["worker 0.0", pytest.param("processor 0", marks=soak), pytest.param("engine 0", marks=soak)],
)
def test_stopped_process_is_reported_by_name_and_can_go_on(
    tmp_path: Path, runtime_dir: Path, process: str
) -> None:
    arguments = ("--engine-arg", "rate=10")
    keys: dict[str, Any] = {"timeouts": {"stuck_s": 1.0}, "api": {"timeout_graceful_shutdown": 0.5}}
    with Running(tmp_path, runtime_dir, *arguments, **keys) as server:
        callers = open_streams(server, 50)
        stopped = server.pid(f"tp:{process}")
        os.kill(stopped, signal.SIGSTOP)
        try:
            assert eventually(lambda: process in server.ready()["problems"]), server.ready()
            assert "no sign of life" in server.ready()["problems"][process]
            assert server.pid(f"tp:{process}") == stopped
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert eventually(server.is_ready), server.ready()
        assert all(goes_on(caller) for caller in callers)
        server.stop()
        for caller in callers:
            caller.join(20)


def test_status_that_cannot_be_written_is_said_and_ends_nothing(
    tmp_path: Path, runtime_dir: Path
) -> None:
    """As on a full disk: what is in the way here, a test can take away again."""
    with Running(tmp_path, runtime_dir, timeouts={"stuck_s": 1.0}) as server:
        engine = server.pid("tp:engine 0")
        in_the_way = runtime_dir / "it" / f"{HEALTH_FILE}.part"

        def blocked() -> bool:
            with suppress(FileExistsError):  # it is being written
                in_the_way.mkdir()
            return in_the_way.is_dir()

        assert eventually(blocked)
        assert eventually(lambda: "engine 0" in server.ready()["problems"]), server.ready()
        assert "cannot write it" in server.ready()["problems"]["engine 0"]
        said = server.post("/v1/completions", {"prompt": [1], "max_tokens": 3})
        assert said.status_code == 200
        in_the_way.rmdir()
        assert eventually(server.is_ready), server.ready()
        assert server.pid("tp:engine 0") == engine
        log = (server.log_dir / "engine-0.log").read_text()
        assert log.count("health cannot be written") == 1, log


@pytest.mark.case("B45")
@pytest.mark.parametrize(
    "title",
    [
        pytest.param("tp:worker 0.0", marks=soak),
        pytest.param("tp:engine 0", marks=soak),
        "tp:api 2",
    ],
)
def test_stopped_process_is_killed_where_told_so(
    tmp_path: Path, runtime_dir: Path, title: str
) -> None:
    policies = {**RESTART, "on_stuck": "kill"}
    keys: dict[str, Any] = {"timeouts": {"stuck_s": 1.5}, "api": {"workers": 2}}
    with Running(tmp_path, runtime_dir, policies=policies, **keys) as server:
        victim = server.pid(title)
        os.kill(victim, signal.SIGSTOP)
        assert eventually(lambda: gone(victim), 15.0)
        # A stopped API worker may hold calls of ours, so that is not asked before.
        assert eventually(lambda: len(server.pids("tp:api")) == 3 and server.is_ready(), 30.0)


@pytest.mark.case("B46")
@pytest.mark.parametrize("reaper", [pytest.param("init", marks=soak), "sub-reaper"])
def test_nothing_outlives_a_killed_supervisor(
    tmp_path: Path, runtime_dir: Path, reaper: str
) -> None:
    before = set(os.listdir("/dev/shm"))
    with Running(tmp_path, runtime_dir, api={"workers": 2}) as server:
        if reaper == "sub-reaper":
            _become_subreaper(True)
        try:
            callers = open_streams(server, 4)
            below = descendants(server.process.pid)
            assert len(below) >= 6
            server.process.kill()
            server.process.wait()
            assert eventually(lambda: all(gone(pid) for pid in below), 5.0)
        finally:
            if reaper == "sub-reaper":
                _reap(below)
                _become_subreaper(False)
        for caller in callers:
            caller.join(20)
    assert list(runtime_dir.iterdir())
    sweep(runtime_dir)
    assert set(os.listdir("/dev/shm")) <= before


def _become_subreaper(on: bool) -> None:
    assert ctypes.CDLL(None).prctl(36, int(on), 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER


def _reap(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            continue


def test_next_start_removes_what_a_killed_one_left(tmp_path: Path, runtime_dir: Path) -> None:
    (tmp_path / "a").mkdir()
    with Running(tmp_path / "a", runtime_dir, name="a") as first:
        first.kill()
    assert [path.name for path in runtime_dir.iterdir()] == ["a"]
    with Running(tmp_path, runtime_dir, name="b") as second:
        assert [path.name for path in runtime_dir.iterdir()] == ["b"]
        assert second.is_ready()


@pytest.mark.case("B46")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=soak)])
def test_random_kills_under_load_leave_nothing(
    tmp_path: Path, runtime_dir: Path, kills: int
) -> None:
    chance = random.Random(kills)
    shm = set(os.listdir("/dev/shm"))
    keys: dict[str, Any] = {"policies": RESTART, "api": {"workers": 2}}
    with Running(tmp_path, runtime_dir, **keys) as server:
        callers: list[Caller] = []
        for _ in range(kills):
            fresh = [Caller(server, 1_000_000) for _ in range(8)]
            callers += fresh
            assert eventually(lambda calls=fresh: sum(c.tokens > 0 for c in calls) >= 4)  # type: ignore[misc]
            victim = chance.choice(server.pids())
            os.kill(victim, signal.SIGKILL)
            assert eventually(lambda pid=victim: healed(server, pid), 60.0), server.pids()  # type: ignore[misc]
        below = descendants(server.process.pid)
        assert server.post("/v1/completions", {"prompt": [1]}).status_code == 200
        assert server.stop() == 0
        for caller in callers:
            caller.join(20)
            assert not caller.is_alive()
    assert all(gone(pid) for pid in below)
    assert set(os.listdir("/dev/shm")) <= shm


@pytest.mark.case("F03")
@pytest.mark.parametrize(
    ("parent", "victim"), [("tp:engine 0", "tp:worker 0.0"), ("tp:supervisor", "tp:api 0")]
)
def test_a_parent_without_descriptors_starts_its_child_when_it_has_some(
    tmp_path: Path, runtime_dir: Path, parent: str, victim: str
) -> None:
    """The dead process comes back as soon as it can; all others serve on."""
    keys: dict[str, Any] = {"data_parallel_size": 2, "policies": {"lost_rank": "move"}}
    with Running(tmp_path, runtime_dir, **keys) as server:
        callers = [Caller(server, 250) for _ in range(10)] if "worker" in victim else []
        assert eventually(lambda: all(caller.tokens for caller in callers), 20.0)
        short = server.pid(parent) if "engine" in parent else server.process.pid
        engine, before = server.pid("tp:engine 0"), server.pid(victim)
        soft, hard = resource.prlimit(short, resource.RLIMIT_NOFILE)
        resource.prlimit(short, resource.RLIMIT_NOFILE, (4, hard))
        os.kill(before, signal.SIGKILL)
        assert eventually(lambda: "cannot be started" in everything_said(server))
        assert not server.pids(victim)
        resource.prlimit(short, resource.RLIMIT_NOFILE, (soft, hard))
        assert eventually(lambda: server.pids(victim) and server.is_ready(), 20.0), server.ready()
        assert server.pid(victim) != before and server.pid("tp:engine 0") == engine
        for caller in callers:
            caller.join(30)
        assert all(caller.tokens == 250 for caller in callers), [c.error for c in callers]


def everything_said(server: Running) -> str:
    logs = (path.read_text() for path in server.log_dir.glob("*.log"))
    return "\n".join([server.output(), *logs])
