"""Run uvicorn in one process of the API server: its signals, and how it ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from .connection import HttpConnection
from .server_state import ServerState
from .settings import ApiSettings

CLOSE_S = 0.5  # for connections whose response is over; what they have not read by then is dropped


class GracefulServer(uvicorn.Server):
    """End in two steps: first admit no new call, then end once all open responses are over.

    uvicorn's own shutdown closes the listening socket first, cancels streams at its deadline and
    raises the signal again; no code after it would run.
    """

    def __init__(
        self, config: uvicorn.Config, state: ServerState, *, takes_signals: bool = True
    ) -> None:
        super().__init__(config)
        self._state = state
        self._takes_signals = takes_signals
        self._loop: asyncio.AbstractEventLoop | None = None
        self._shutting_down: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)  # type: ignore[arg-type]

    async def on_tick(self, counter: int) -> bool:
        """Look at each connection, ten times a second."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpConnection):
                connection.look()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal. Python calls it between any two bytecodes of the loop's thread."""
        if self._loop is None or not self.started:
            # The server may wait for an engine that never comes, and has nothing to close yet.
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        elif self._shutting_down is None:
            self._loop.call_soon_threadsafe(self.begin_shutdown)
        elif sig == signal.SIGINT:
            self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the owner, where there is one."""
        if not self._takes_signals:
            yield
            return
        with super().capture_signals():
            yield

    def begin_shutdown(self, patience_s: float | None = None) -> None:
        """Admit no new call, and end once every open response is over. Runs in the loop's thread.

        Open responses have `patience_s` from now on, by default what the topology says. A later
        call with a number sets an earlier end.
        """
        if not self.started:
            self._state.link.stop_opening()
        if patience_s is not None:
            asyncio.get_running_loop().call_later(patience_s, self._state.end_responses)
        if self._shutting_down is None:
            self._shutting_down = asyncio.create_task(self._shut_down())

    async def _shut_down(self) -> None:
        await self._state.shut_down()
        self.should_exit = True


def make_config(settings: ApiSettings, app: object) -> uvicorn.Config:
    """Return uvicorn's configuration; it is the same for one process and for forked workers."""
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=HttpConnection,
        loop="auto",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=settings.topology.api.access_log,
        server_header=False,
        backlog=settings.topology.api.backlog,
        timeout_graceful_shutdown=CLOSE_S,  # type: ignore[arg-type]  # a float works as well
    )
