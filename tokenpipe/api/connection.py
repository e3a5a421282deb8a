"""One HTTP connection: uvicorn's protocol, with its ends, its bounds and its refusals.

uvicorn tells only the newest request of a connection that its caller left, and it reads nothing
while one request waits behind another. So a caller could leave without being noticed. uvicorn
also bounds no head, and it loses the body behind an offer to change the protocol.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .http_bytes import head_without_offer, refusal
from .open_connections import OpenConnections
from .problems import Problem

HEAD_BYTES = 65_536
PIECE_BYTES = 16_384  # of a head, fed to the parser at a time
LINGER_S = 1.0  # for the caller to read a refusal, while the rest of its request is discarded
LATE = "connections whose request was not complete in time"
NO_HTTP = "requests that were not HTTP, or had a head that is too large"
_GONE = select.POLLHUP | select.POLLERR
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpConnection(HttpToolsProtocol):
    """End every answer with the connection. A caller that only stops sending gets its answers.

    A caller that closes its connection and one that closes only its sending side look the same
    until something is sent to them: the first answers with a reset. So something is sent at once.
    """

    def __init__(self, *args: Any, open_connections: OpenConnections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.url = b""
        self.half_closed = False  # the caller sends nothing more
        self._all = open_connections
        self._cycles: list[RequestResponseCycle] = []  # requests and their answers, oldest first
        self._in_head = True  # not in a body
        self._unfinished = 0  # bytes that ended no head and were of no body
        self._discards = False  # nothing more is read from this connection
        self._refusal = b""  # to be sent behind the open answers

    # --- the connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "connection": self}  # for the responses
        self._all.add(self, self.loop.time())

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
        self._all.remove(self)
        self.pipeline.clear()
        for cycle in self._open_cycles():
            _tell_end(cycle)
        self._cycles.clear()

    def drop(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    def look(self) -> bool:
        """Ask the socket for an end that nothing reads; return whether to look again."""
        unread = self.half_closed or self.flow.read_paused
        if not unread or not self._open_cycles() or self.transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket"), select.POLLRDHUP)
        for _, events in poll.poll(0):
            if events & _GONE:
                self.transport.abort()
            else:
                self._other_side_closed()
        return True

    def _other_side_closed(self) -> None:
        if self.half_closed:
            return
        self.half_closed = True
        self._all.watch(self)
        cycle = self._open_cycles()[0]
        if cycle.response_started:
            return  # what the response sends next shows whether the caller is there
        if cycle.scope["http_version"] == "1.0":
            self.transport.abort()  # it knows no interim response
        else:
            self.transport.write(_CONTINUE)

    def _open_cycles(self) -> list[RequestResponseCycle]:
        return [cycle for cycle in self._cycles if not cycle.response_complete]

    # --- what is read ---

    def data_received(self, data: bytes) -> None:
        """Feed the parser; a head in pieces, so that its bytes can be counted."""
        self._unset_keepalive_if_required()
        while data and not self._discards:
            size = PIECE_BYTES if self._in_head else len(data)
            piece, data = data[:size], data[size:]
            self._unfinished += len(piece)
            self._feed(piece)
            if self._unfinished > HEAD_BYTES:
                self._all.events.count(NO_HTTP)
                status, what = (414, "URL") if len(self.url) * 2 > HEAD_BYTES else (431, "head")
                self.refuse(Problem(status, f"the request's {what} exceeds {HEAD_BYTES} bytes"))

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            (used,) = offer.args  # bytes of `data`
            self._without_offer(data[used:])
        except httptools.HttpParserError as error:
            self._all.events.count(NO_HTTP)
            self.refuse(Problem(400, f"the request is not HTTP: {error}"))

    def _without_offer(self, rest: bytes) -> None:
        """Read the request as if it offered no other protocol, which HTTP allows."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if method == b"CONNECT":
            self.refuse(Problem(405, "CONNECT: this server is no proxy"))
            return
        head = head_without_offer(method, self.url, version, self.headers)
        self.parser = httptools.HttpRequestParser(self)
        with suppress(AttributeError):  # as uvicorn sets it; an old httptools does not have it
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._feed(head)
        if rest and not self._discards:
            self._feed(rest)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._all.waits(self, self.loop.time())

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # a trailer of a body is not read
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # the head is read again, without the offer
        self._in_head, self._unfinished = False, 0
        super().on_headers_complete()
        self._cycles = [*self._open_cycles(), self.cycle]
        self._all.asks(self)
        self._all.waits_again(self, self.loop.time())
        if self.cycle.scope["http_version"] == "1.0":
            self.cycle.send = _ended_by_close(self.cycle)  # type: ignore[method-assign, assignment]
        if self.flow.read_paused:
            self._all.watch(self)

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        self._all.waits_again(self, self.loop.time())
        super().on_body(body)
        if self.flow.read_paused:
            self._all.watch(self)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_head = True
        self._all.has_all(self)
        super().on_message_complete()
        self.cycle.more_body = False  # also of a request that was answered before it was whole

    def overdue(self, receive_s: float) -> None:
        """Give up a request that is not complete; a connection without one is closed."""
        if self.transport.is_closing():
            return
        if self.flow.read_paused:  # the caller cannot send
            self._all.waits_again(self, self.loop.time())
            return
        self._all.events.count(LATE)
        if self.cycle is None and not self._unfinished:
            self.transport.close()  # it never sent a byte
        else:
            self.refuse(Problem(408, f"the request was not complete within {receive_s:g} s"))

    # --- what is answered ---

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing() or self._open_cycles():
            return
        if self._refusal:
            self._end(self._refusal)
            return
        if self.cycle.more_body:  # the answer did not wait for the rest of the request
            self.loop.call_later(LINGER_S, self._end_without_rest, self.cycle)
        self._all.answered(self)

    def _end_without_rest(self, cycle: RequestResponseCycle) -> None:
        if self.cycle is cycle and cycle.more_body and not self.transport.is_closing():
            self.transport.close()

    def refuse(self, problem: Problem) -> None:
        """Answer with an error behind the answers that are open. Read nothing more."""
        if self._discards:
            return
        self._discards = True
        cycles = self._open_cycles()
        if cycles and cycles[-1].more_body:  # the error is in its body
            broken = cycles.pop()
            self.pipeline = type(self.pipeline)(x for x in self.pipeline if x[0] is not broken)
            self._cycles = cycles
            _tell_end(broken)
            if broken.response_started:
                self.transport.abort()
                return
        self._refusal = refusal(problem, self.server_state.default_headers)
        if not cycles:
            self._end(self._refusal)

    def _end(self, last: bytes) -> None:
        """Send the last bytes, and close the connection when the caller has had time to read them.

        A connection that is closed while bytes of the caller are unread is reset, and a reset
        removes what the caller has not read yet.
        """
        self._discards = True
        self._all.has_all(self)
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        self.transport.write(last)
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)


def _tell_end(cycle: RequestResponseCycle) -> None:
    """Tell a request that its caller is no longer there."""
    cycle.disconnected = True
    cycle.message_event.set()


def _ended_by_close(cycle: RequestResponseCycle) -> Callable[[Any], Awaitable[None]]:
    """Return a `send` for HTTP/1.0, which has no chunks: the end of the connection ends a body."""
    send = cycle.send
    endless = False

    async def send_plainly(message: Any) -> None:
        nonlocal endless
        if message["type"] == "http.response.start":
            names = [name.lower() for name, _ in message.get("headers", ())]
            endless = b"content-length" not in names
            if endless:
                cycle.chunked_encoding = False
        elif endless:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    return send_plainly
