"""Give the header x-request-id of a call back to its caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

NAME = b"x-request-id"

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


def id_header(request_id: str) -> list[tuple[bytes, bytes]]:
    """Return the header of a response. An id that a header cannot hold gives none."""
    if not (request_id.isascii() and request_id.isprintable()):
        return []
    return [(NAME, request_id.encode())]


class RequestIdEcho:
    """An ASGI middleware, the outermost. A response that has the header already keeps its own."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Send
    ) -> None:
        """Call the application."""
        if scope["type"] == "http":
            scope.get("state", {})["send"] = send  # the server's own, for streamed answers
            given = next((value for name, value in scope["headers"] if name == NAME), None)
            if given:
                send = _with_header(send, given)
        await self._app(scope, receive, send)


def _with_header(send: Send, given: bytes) -> Send:
    async def send_with_id(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message.setdefault("headers", [])
            if all(name.lower() != NAME for name, _ in headers):
                message["headers"] = [*headers, (NAME, given)]
        await send(message)

    return send_with_id
