"""One serving process on uvicorn, whichever flavour started it: its signals and its end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .server_state import ServerState
from .settings import Settings

CLOSE_S = 0.5  # for connections whose answer is over: what they have not read is given up


class Connection(HttpToolsProtocol):
    """Let an answer find its transport, so that one to a reader that is gone can be cut off."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


class DrainingServer(uvicorn.Server):
    """Ends in two steps: at the signal admission, at the end of open answers everything else.

    uvicorn's own shutdown would close the door first, cancel streams at its deadline and re-raise
    the signal, so that nothing after it would run.
    """

    def __init__(
        self, config: uvicorn.Config, state: ServerState, *, takes_signals: bool = True
    ) -> None:
        super().__init__(config)
        self._state = state
        self._takes_signals = takes_signals
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)  # type: ignore[arg-type]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal; called between any two bytecodes of the loop's thread."""
        if self._loop is None or not self.started:
            # It may be waiting for an engine that will not come, and holds nothing yet.
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        elif self._draining is None:
            self._loop.call_soon_threadsafe(self.drain)
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

    def drain(self, patience_s: float | None = None) -> None:
        """Begin to end: open answers have so long, by default what the topology says.

        Once more with a number, that is what they still have. For the loop's thread.
        """
        if not self.started:
            self._state.link.give_up()
        if patience_s is not None:
            asyncio.get_running_loop().call_later(patience_s, self._state.end_answers)
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        await self._state.drain()
        self.should_exit = True


def make_config(settings: Settings, app: object) -> uvicorn.Config:
    """Say how uvicorn serves, the same in both flavours."""
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=Connection,
        loop="auto",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=settings.topology.api.access_log,
        server_header=False,
        backlog=settings.topology.api.backlog,
        timeout_graceful_shutdown=CLOSE_S,  # type: ignore[arg-type]  # any number will do
    )
