"""One HTTP connection: uvicorn's protocol, with what uvicorn does not tell.

uvicorn tells only the newest request of a connection that its caller left, and it reads nothing
while one request waits behind another. So a caller could leave without being noticed.
"""

from __future__ import annotations

import asyncio
import select
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_GONE = select.POLLHUP | select.POLLERR
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpConnection(HttpToolsProtocol):
    """End every answer with the connection. A caller that only stops sending gets its answers.

    A caller that closes its connection and one that closes only its sending side look the same
    until something is sent to them: the first answers with a reset. So something is sent at once.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.half_closed = False  # the caller sends nothing more
        self._cycles: list[RequestResponseCycle] = []  # requests and their answers, oldest first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "connection": self}  # for the responses

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._cycles = [*self._open_cycles(), self.cycle]

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep the connection open while an answer is due; return whether one is."""
        cycles = self._open_cycles()
        if not cycles or cycles[-1].more_body:  # the last request will never be complete
            return None
        self.cycle.keep_alive = False
        self._other_side_closed()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.pipeline.clear()
        for cycle in self._open_cycles():
            cycle.disconnected = True
            cycle.message_event.set()
        self._cycles.clear()

    def look(self) -> None:
        """Look for an end of the connection that nothing reads. Call it several times a second."""
        unread = self.half_closed or (self.flow is not None and self.flow.read_paused)
        if not unread or not self._open_cycles() or self.transport.is_closing():
            return
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket"), select.POLLRDHUP)
        for _, events in poll.poll(0):
            if events & _GONE:
                self.transport.abort()
            else:
                self._other_side_closed()

    def _other_side_closed(self) -> None:
        if self.half_closed:
            return
        self.half_closed = True
        cycle = self._open_cycles()[0]
        if cycle.response_started:
            return  # what the response sends next shows whether the caller is there
        if cycle.scope["http_version"] == "1.0":
            self.transport.abort()  # it knows no interim response
        else:
            self.transport.write(_CONTINUE)

    def _open_cycles(self) -> list[RequestResponseCycle]:
        return [cycle for cycle in self._cycles if not cycle.response_complete]
