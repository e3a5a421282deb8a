"""One process of an API server: responses are counted, ended and shut down, and health is told."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.api.pipeline_thread import pipeline
from tokenpipe.api.problems import Problem
from tokenpipe.api.server_state import FINAL_EVENTS_S, ServerState
from tokenpipe.api.settings import ApiSettings
from tokenpipe.errors import LaneLost
from tokenpipe.instance import Health, HealthWriter, ModelCard, write_model_card
from tokenpipe.notify import Notifier
from tokenpipe.topology import Topology


class Response:
    """A response that ends when it is told to, or never."""

    def __init__(self, state: ServerState, *, deaf: bool = False) -> None:
        self.state, self.deaf = state, deaf
        self.problems: list[Problem] = []
        self.checks = 0

    def end(self, problem: Problem) -> None:
        self.problems.append(problem)
        if not self.deaf:
            self.state.remove(self)

    def check(self, now: float) -> None:
        self.checks += 1


def state_of(endpoint: Path | str, grace_s: float = 5.0, **more: Any) -> ServerState:
    topology = Topology(api={"timeout_graceful_shutdown": grace_s})
    deadline = time.monotonic() + more.pop("patience_s", 20.0)
    return ServerState(
        ApiSettings(topology, str(endpoint), -1, False, deadline, Notifier(None)), "3"
    )


def test_shutdown_ends_with_the_last_response_and_admits_no_other(tmp_path: Path) -> None:
    async def shut_down() -> None:
        state = state_of(tmp_path, 60.0)
        response = Response(state)
        state.admit(response)
        ending = asyncio.create_task(state.shut_down())
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="shutting down") as caught:
            state.admit(Response(state))
        assert caught.value.status == 503 and not ending.done()
        state.remove(response)
        await asyncio.wait_for(ending, 10)
        assert response.problems == []

    asyncio.run(shut_down())


def test_shutdown_ends_what_is_left_at_its_deadline(tmp_path: Path) -> None:
    async def shut_down() -> None:
        state = state_of(tmp_path, 0.1)
        responses = [Response(state), Response(state, deaf=True)]
        for response in responses:
            state.admit(response)
        began = time.monotonic()
        await state.shut_down()  # one of them never ends
        assert time.monotonic() - began >= 0.1 + FINAL_EVENTS_S
        for response in responses:
            (problem,) = response.problems
            assert (problem.status, problem.message) == (503, "the server is shutting down")

    asyncio.run(shut_down())


def test_an_empty_server_shuts_down_at_once(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(state_of(tmp_path, 60.0).shut_down(), 10))


def test_open_attaches_and_checks_responses_until_close(runtime_dir: Path) -> None:
    async def live(endpoint: Path) -> None:
        state = state_of(endpoint)
        await state.open()
        response = Response(state)
        state.admit(response)
        while not response.checks:
            await asyncio.sleep(0.01)
        assert list(endpoint.glob("a[0-9a-f]*"))
        assert "api 3" not in state.health().problems
        await state.close()
        assert not list(endpoint.glob("a[0-9a-f]*"))
        assert state.health().problems["api 3"] == "the server is shutting down"

    with pipeline(runtime_dir) as endpoint:
        asyncio.run(live(endpoint))


def test_open_raises_at_its_deadline(tmp_path: Path) -> None:
    async def attach() -> None:
        state = state_of(tmp_path / "none", patience_s=-1.0)
        with pytest.raises(LaneLost, match="there is no instance"):
            await state.open()
        await state.close()

    asyncio.run(attach())


def test_the_model_card_is_a_503_until_it_is_known(runtime_dir: Path) -> None:
    async def ask(endpoint: Path) -> None:
        state = state_of(endpoint)
        with pytest.raises(Problem, match="the engine has not started yet"):
            state.require_model_card()
        await state.open()
        assert state.model_card() is None
        with pytest.raises(Problem, match="no worker is up") as caught:
            state.require_model_card()
        assert caught.value.status == 503
        card = ModelCard(("lora",), 100)
        write_model_card(endpoint, card)
        assert state.require_model_card() == state.model_card() == card
        await state.close()

    with pipeline(runtime_dir) as endpoint:
        asyncio.run(ask(endpoint))


def test_health_adds_this_process_to_the_engines_own(tmp_path: Path) -> None:
    async def look() -> None:
        state = state_of(tmp_path)
        HealthWriter(tmp_path).write(Health({"rank 0": "is down"}, (1,), 2, 3), 0.0)
        health = state.health()
        assert (health.ranks_up, health.running, health.waiting) == ((1,), 2, 3)
        assert health.problems == {"rank 0": "is down", "api 3": "the engine has not started yet"}
        await state.shut_down()
        assert state.health().problems["api 3"] == "is shutting down"

    asyncio.run(look())
