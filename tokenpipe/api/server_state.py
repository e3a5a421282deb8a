"""Hold what one process of the API server has: its link to the engine and its open responses."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tokenpipe.instance import Health, ModelCard, ModelCardReader, read_health
from tokenpipe.notify import WATCHDOG_S

from .abort import AbortSocket
from .engine_link import EngineLink
from .event_log import EventLog
from .off_loop import OffLoop
from .open_connections import OpenConnections
from .problems import Problem, unavailable
from .settings import ApiSettings

FINAL_EVENTS_S = 0.3  # for the last events of streams, after the deadline of the shutdown
_log = logging.getLogger("tokenpipe.api")


class OpenResponse(Protocol):
    """The response to one call, until it is over."""

    def end(self, problem: Problem) -> None:
        """End it; the problem is its status, or the last event of its stream."""

    def check(self, now: float) -> None:
        """Close its connection if the caller has not read for too long."""


class ServerState:
    """It is made before the event loop runs. All of its methods run in the loop."""

    def __init__(self, settings: ApiSettings, rank: str) -> None:
        """`rank` is the number of this process among the workers of the API server."""
        self.settings = settings
        self.rank = rank
        self.link = EngineLink(settings.endpoint)
        self.abort_socket = AbortSocket(Path(settings.endpoint), self.link.abort)
        self.off_loop = OffLoop()
        api = settings.topology.api
        self.connections = OpenConnections(api.max_connections, api.timeout_receive, EventLog(_log))
        self.failure: BaseException | None = None  # what made the start fail
        self._cards = ModelCardReader(Path(settings.endpoint))
        self._responses: set[OpenResponse] = set()
        self._none_open = asyncio.Event()
        self._shutting_down = False
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Attach to the engine, then notify that this process is ready.

        Raises at the deadline of the start what the last attempt raised.
        """
        settings = self.settings
        settings.notifier.phase("waiting for the engine's welcome")
        await self.link.open(settings.deadline)
        self.abort_socket.open()
        self._tasks = [
            asyncio.create_task(self.link.keep_open()),
            asyncio.create_task(self._check_responses()),
        ]
        settings.notifier.ready(rank=self.rank, pid=os.getpid())

    async def close(self) -> None:
        """Close the client and the abort socket; the engine and the other workers go on."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()
        self.abort_socket.close()
        self.off_loop.close()
        await self.link.close()
        _log.info("the API worker closed its client")

    # --- responses ---

    def admit(self, response: OpenResponse) -> None:
        """Add an open response. Raises Problem, a 503, once the server shuts down."""
        if self._shutting_down:
            raise unavailable("the server is shutting down")
        self._responses.add(response)

    def remove(self, response: OpenResponse) -> None:
        """Remove a response that is over."""
        self._responses.discard(response)
        if not self._responses:
            self._none_open.set()

    async def shut_down(self) -> None:
        """Admit no new response, and return once all are over; end them at the deadline."""
        self._shutting_down = True
        patience = self.settings.topology.api.timeout_graceful_shutdown
        count = len(self._responses)
        _log.info("the API worker shuts down: %d open response(s) have %g s", count, patience)
        if await self._all_over(patience):
            return
        count = len(self._responses)
        _log.warning("%d response(s) were not over at the deadline and are ended", count)
        self.end_responses()
        await self._all_over(FINAL_EVENTS_S)

    def end_responses(self) -> None:
        """End every open response with a 503, or an error event."""
        for response in list(self._responses):
            response.end(unavailable("the server is shutting down"))

    async def _all_over(self, timeout_s: float) -> bool:
        self._none_open.clear()
        if self._responses:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._none_open.wait(), timeout_s)
        return not self._responses

    async def _check_responses(self) -> None:
        """Give a sign of life, and check each response, several times a second."""
        notifier = self.settings.notifier
        while True:
            notifier.watchdog()
            self.abort_socket.keep()
            now = time.monotonic()
            for response in list(self._responses):
                response.check(now)
            await asyncio.sleep(WATCHDOG_S)

    # --- the engine ---

    def model_card(self) -> ModelCard | None:
        """Return what the model accepts; None until every worker has been ready once."""
        return self._cards.read()

    def require_model_card(self) -> ModelCard:
        """Return what the model accepts. Raises Problem, a 503, while it is not known."""
        card = self.model_card()
        if card is None:
            self.link.client()  # if the engine is away, its 503 says why
            raise unavailable("no worker is up")
        return card

    def health(self) -> Health:
        """Return the health of all processes, that of this one included."""
        stuck_s = self.settings.topology.timeouts.stuck_s
        found = read_health(Path(self.settings.endpoint), stuck_s)
        problem = "is shutting down" if self._shutting_down else self.link.absence_reason
        own = {f"api {self.rank}": problem} if problem else {}
        return Health({**found.problems, **own}, found.ranks_up, found.running, found.waiting)
