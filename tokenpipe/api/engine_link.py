"""Hold this process's client, through the lives of the engine."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable

from tokenpipe.client import AsyncClient
from tokenpipe.errors import TokenpipeError

from .problems import unavailable

RETRY_S = 0.1
_log = logging.getLogger("tokenpipe.api")


class EngineLink:
    """A client while the engine is there; looks for the next one while it is not.

    `open` the first time, then `keep` as a task; both in the event loop that serves.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._client: AsyncClient | None = None
        self._why = "the engine is not there yet"
        self._given_up = False

    def client(self) -> AsyncClient:
        """Return the client. Raises Problem, a 503, while the engine is away."""
        client = self._client
        if client is None or client.lost is not None:
            raise unavailable(self.trouble or self._why)
        return client

    @property
    def trouble(self) -> str:
        """Why there is no client, "" while there is one."""
        client = self._client
        if client is None:
            return self._why
        return "" if client.lost is None else str(client.lost)

    def abort(self, request_id: str) -> int:
        """Ask for the end of this process's requests of that id; return how many there are."""
        client = self._client
        return 0 if client is None or client.lost is not None else client.abort(request_id)

    async def open(self, deadline: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Attach to the instance. Raises what the last attempt raised, at the deadline."""
        while True:
            try:
                await self._attach()
            except TokenpipeError:
                if self._given_up or clock() >= deadline:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                return

    def give_up(self) -> None:
        """Let `open` end now, attached or not."""
        self._given_up = True

    async def keep(self) -> None:
        """Replace a client that is lost, for ever; cancel it to end it."""
        while True:
            await asyncio.sleep(RETRY_S)
            client = self._client
            if client is not None and client.lost is not None:
                self._why = self.trouble
                _log.error("%s", self._why)
                self._client = None
                await client.aclose()
            if self._client is None:
                try:
                    await self._attach()
                except TokenpipeError as error:
                    self._why = f"the engine is gone: {error}"
                else:
                    _log.info("the engine is back")

    async def _attach(self) -> None:
        client = AsyncClient(self._endpoint, name=f"api-{os.getpid()}")
        await client.open()
        self._client = client

    async def close(self) -> None:
        """Give the client back."""
        client, self._client = self._client, None
        self._why = "the server is shutting down"
        if client is not None:
            await client.aclose()
