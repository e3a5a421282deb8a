"""Hold this process's client of the engine, and open another one if the client is lost."""

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
    """The client, if the engine is there.

    Await `open` once, then run `keep_open` as a task. Both run in the event loop of the server.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._client: AsyncClient | None = None
        self._why = "the engine has not started yet"  # why there is no client
        self._stopped = False
        self._losses = 0  # losses of the engine that are logged
        self._away = False  # the last one of them is not over

    def client(self) -> AsyncClient:
        """Return the client. Raises Problem, a 503, while there is none."""
        client = self._client
        if client is None or self.absence_reason:
            raise unavailable(self.absence_reason or self._why)
        return client

    @property
    def absence_reason(self) -> str:
        """Why there is no client; "" if there is one."""
        client = self._client
        if client is None:
            return self._why
        return str(client.lost or client.away or "")

    def abort(self, request_id: str) -> int:
        """Abort this process's requests of an id; return how many there are."""
        client = self._client
        return 0 if client is None or client.lost is not None else client.abort(request_id)

    async def open(self, deadline: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the client. Raises at the deadline what the last attempt raised."""
        while True:
            try:
                await self._attach()
            except (TokenpipeError, OSError):  # the disk may be full, or no descriptor free
                if self._stopped or clock() >= deadline:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                return

    def stop_opening(self) -> None:
        """Make `open` raise after its present attempt."""
        self._stopped = True

    async def keep_open(self) -> None:
        """Replace a client that is lost, again and again, until the task is cancelled.

        While the engine is started again, the client attaches by itself.
        """
        while True:
            await asyncio.sleep(RETRY_S)
            client = self._client
            if client is not None:
                self._log_losses(client)
            if client is not None and client.lost is not None:
                self._why = self.absence_reason
                _log.error("%s", self._why)
                self._client = None
                await client.aclose()
            if self._client is None:
                try:
                    await self._attach()
                except (TokenpipeError, OSError) as error:
                    self._why = f"the engine is gone: {error}"
                else:
                    _log.info("the engine is back")

    def _log_losses(self, client: AsyncClient) -> None:
        """Log that the engine is gone, or back. It may have been away for less than `RETRY_S`."""
        if client.engines_lost != self._losses:
            self._losses, self._away = client.engines_lost, True
            _log.error("%s", client.away or "the engine is gone, and another one is there")
        if self._away and client.away is None and client.lost is None:
            self._away = False
            _log.info("the engine is back")

    async def _attach(self) -> None:
        client = AsyncClient(self._endpoint, name=f"api-{os.getpid()}")
        await client.open()
        self._client = client
        self._losses, self._away = 0, False

    async def close(self) -> None:
        """Close the client."""
        client, self._client = self._client, None
        self._why = "the server is shutting down"
        if client is not None:
            await client.aclose()
