"""What one serving process has: its link to the engine, the answers it is giving, its end."""

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

from .abort import AbortPost
from .engine_link import EngineLink
from .problems import Problem, unavailable
from .settings import Settings

LAST_WORDS_S = 0.3  # for the final events, once the deadline is over
_log = logging.getLogger("tokenpipe.api")


class Answer(Protocol):
    """One call that is being answered."""

    def end(self, problem: Problem) -> None:
        """End it with this as its last word."""

    def check(self, now: float) -> None:
        """See whether its reader still reads."""


class ServerState:
    """Made before the event loop runs; everything else of it belongs to the loop."""

    def __init__(self, settings: Settings, rank: str) -> None:
        self.settings = settings
        self.rank = rank
        self.link = EngineLink(settings.endpoint)
        self._cards = ModelCardReader(Path(settings.endpoint))
        self.post = AbortPost(Path(settings.endpoint), self.link.abort)
        self.answers: set[Answer] = set()
        self.draining = False
        self._tasks: list[asyncio.Task[None]] = []
        self._none_left = asyncio.Event()
        self.failure: BaseException | None = None  # of the start

    async def open(self) -> None:
        """Attach to the engine, then say ready; raises what stands in the way, at the deadline."""
        settings = self.settings
        settings.notifier.phase("waiting for the engine's welcome")
        await self.link.open(settings.deadline)
        self.post.open()
        self._tasks = [asyncio.create_task(self.link.keep()), asyncio.create_task(self._beat())]
        settings.notifier.ready(rank=self.rank, pid=os.getpid())

    async def close(self) -> None:
        """Give everything back; the engine and the other workers go on."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()
        self.post.close()
        await self.link.close()
        _log.info("closed its client")

    # --- answers ---

    def admit(self, answer: Answer) -> None:
        """Count an answer in. Raises Problem, a 503, once admission has stopped."""
        if self.draining:
            raise unavailable("the server is shutting down")
        self.answers.add(answer)

    def leave(self, answer: Answer) -> None:
        """Count an answer out."""
        self.answers.discard(answer)
        if not self.answers:
            self._none_left.set()

    async def drain(self) -> None:
        """Stop admission; return once every answer is over, or was ended at the deadline."""
        self.draining = True
        patience = self.settings.topology.api.timeout_graceful_shutdown
        _log.info("drains %d answer(s), at most %g s", len(self.answers), patience)
        if await self._all_left(patience):
            return
        _log.warning("ends %d answer(s) at the deadline", len(self.answers))
        self.end_answers()
        await self._all_left(LAST_WORDS_S)

    def end_answers(self) -> None:
        """Have every answer end with a last word."""
        for answer in list(self.answers):
            answer.end(unavailable("the server is shutting down"))

    async def _all_left(self, timeout_s: float) -> bool:
        self._none_left.clear()
        if self.answers:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._none_left.wait(), timeout_s)
        return not self.answers

    # --- the model ---

    def model_card(self) -> ModelCard | None:
        """Return what the model accepts; None until all workers have said it."""
        return self._cards.read()

    def known_model_card(self) -> ModelCard:
        """Return what the model accepts. Raises Problem, a 503, until all workers have said it."""
        card = self.model_card()
        if card is None:
            self.link.client()  # says more where the engine is away
            raise unavailable("no worker is up")
        return card

    # --- health ---

    def health(self) -> Health:
        """Return how every hop is, this process's own link included."""
        stuck_s = self.settings.topology.timeouts.stuck_s
        found = read_health(Path(self.settings.endpoint), stuck_s)
        mine: dict[str, str] = {}
        if self.draining:
            mine[f"api {self.rank}"] = "is shutting down"
        elif self.link.trouble:
            mine[f"api {self.rank}"] = self.link.trouble
        return Health({**found.problems, **mine}, found.ranks_up, found.running, found.waiting)

    async def _beat(self) -> None:
        notifier = self.settings.notifier
        while True:
            notifier.watchdog()
            now = time.monotonic()
            for answer in list(self.answers):
                answer.check(now)
            await asyncio.sleep(WATCHDOG_S)
