"""Run uvicorn in one process of the API server: its signals, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from .connection import HttpConnection
from .descriptors import ACCEPTS
from .server_state import ServerState

CLOSE_S = 0.5  # for connections whose response is over; what they have not read by then is dropped
SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
NOT_ACCEPTED = "times that no connection could be accepted, for lack of descriptors or memory"


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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._handle_error)
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(self._state.settings.topology.api.backlog)  # ACCEPTS is not its backlog

    def _handle_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in SHORTAGES:
            self._state.connections.events.count(NOT_ACCEPTED)
        else:
            loop.default_exception_handler(context)

    async def on_tick(self, counter: int) -> bool:
        """Look at the connections, ten times a second."""
        self._state.connections.look(asyncio.get_running_loop().time())
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
        """Leave signals to the owner, if there is one."""
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


def make_config(state: ServerState, app: object) -> uvicorn.Config:
    """Return uvicorn's configuration; it is the same for one process and for forked workers."""
    api = state.settings.topology.api
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=partial(HttpConnection, open_connections=state.connections),  # type: ignore[arg-type]
        loop="auto",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=api.access_log,
        server_header=False,
        backlog=ACCEPTS,
        timeout_keep_alive=api.timeout_keep_alive,  # type: ignore[arg-type]  # a float works too
        timeout_graceful_shutdown=CLOSE_S,  # type: ignore[arg-type]  # a float works as well
    )
