"""An API server's client: found, lost with its engine, and found again at the next one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.api.pipeline_thread import pipeline
from tests.client.engine import fake_engine, only_listen, serve
from tokenpipe.api.engine_link import EngineLink
from tokenpipe.api.problems import Problem
from tokenpipe.errors import LaneLost, TokenpipeError
from tokenpipe.topology import Topology
from tokenpipe.types import SamplingParams


async def until(fact: Callable[[], object], timeout_s: float = 8.0) -> None:
    """Wait in the loop until a fact holds."""
    end = time.monotonic() + timeout_s
    while not fact():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_it_serves_while_the_engine_is_there_and_says_why_it_is_not(runtime_dir: Path) -> None:
    async def main() -> None:
        with fake_engine(runtime_dir, serve) as engine:
            link = EngineLink(str(engine.endpoint))
            with pytest.raises(Problem) as caught:
                link.client()
            assert caught.value.status == 503 and "has not started yet" in caught.value.message
            assert link.absence_reason and link.abort("r") == 0
            await link.open(time.monotonic() + 5)
            assert link.absence_reason == ""
            outs = [o async for o in link.client().generate([1], SamplingParams(max_tokens=4), "r")]
            assert sum(len(out.token_ids) for out in outs) == 4
            await link.close()
            with pytest.raises(Problem, match="shutting down"):
                link.client()
            await link.close()

    asyncio.run(main())


def test_an_abort_counts_the_requests_of_this_process(runtime_dir: Path) -> None:
    async def main() -> None:
        with fake_engine(runtime_dir, only_listen) as engine:
            link = EngineLink(str(engine.endpoint))
            await link.open(time.monotonic() + 5)
            streams = [link.client().generate([1], request_id="r") for _ in range(2)]
            assert (link.abort("r"), link.abort("other")) == (2, 0)
            del streams
            await link.close()

    asyncio.run(main())


def test_an_engine_that_dies_is_told_and_looked_for_until_the_end(runtime_dir: Path) -> None:
    async def main() -> None:
        topology = Topology(clients=1, timeouts={"startup_s": 0.2})
        with fake_engine(runtime_dir, only_listen, topology) as engine:
            link = EngineLink(str(engine.endpoint))
            await link.open(time.monotonic() + 5)
            keeping = asyncio.create_task(link.keep_open())
            engine.fall_silent()
            await until(lambda: link.absence_reason)
            assert link.absence_reason == "the engine is gone: engine 0 is dead"
            with pytest.raises(Problem) as caught:
                link.client()
            assert caught.value.status == 503 and caught.value.message == link.absence_reason
            assert link.abort("r") == 0
            await until(
                lambda: "no welcome" in link.absence_reason
            )  # it has looked for the next one
            keeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await keeping
            await link.close()

    asyncio.run(main())


def test_opening_ends_at_its_deadline_or_when_it_is_given_up(runtime_dir: Path) -> None:
    async def main() -> None:
        link = EngineLink(str(runtime_dir / "nothing"))
        began = time.monotonic()
        with pytest.raises(TokenpipeError):
            await link.open(began + 0.3)
        assert 0.3 <= time.monotonic() - began < 5
        opening = asyncio.create_task(link.open(began + 60))
        await asyncio.sleep(0)
        link.stop_opening()
        with pytest.raises(TokenpipeError):
            await asyncio.wait_for(opening, 5)

    asyncio.run(main())


def test_a_lost_client_is_replaced_when_the_engine_is_back(runtime_dir: Path) -> None:
    async def live() -> None:
        link = EngineLink(str(runtime_dir / "it"))
        with pipeline(runtime_dir):
            await link.open(float("inf"))
            first = link.client()
            keeping = asyncio.create_task(link.keep_open())
        await until(lambda: link.absence_reason)
        assert link.absence_reason.startswith("the engine is gone: ")
        assert link.abort("r") == 0
        with pipeline(runtime_dir):
            await until(lambda: not link.absence_reason)
            assert link.client() is not first
            keeping.cancel()
            await link.close()

    asyncio.run(live())


class Client:
    """What the log asks a client for."""

    engines_lost = 0
    away: LaneLost | None = None
    lost: LaneLost | None = None


def test_each_loss_is_logged_however_short(caplog: pytest.LogCaptureFixture) -> None:
    link, client = EngineLink("nowhere"), Client()

    def said() -> list[str]:
        caplog.clear()
        link._log_losses(client)  # type: ignore[arg-type]
        return [record.message for record in caplog.records]

    with caplog.at_level("INFO", "tokenpipe.api"):
        assert said() == []
        client.engines_lost, client.away = 1, LaneLost("the engine is gone: it died")
        assert said() == ["the engine is gone: it died"] and said() == []
        client.away = None
        assert said() == ["the engine is back"] and said() == []
        client.engines_lost = 2  # it was back before anyone looked
        assert said() == ["the engine is gone, and another one is there", "the engine is back"]
        client.engines_lost, client.lost = 3, LaneLost("no engine was there")
        assert len(said()) == 1 and said() == []
