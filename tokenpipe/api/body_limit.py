"""Refuse a request whose body is too large before all of it is in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

from .json_text import json_bytes
from .problems import Problem

Message = MutableMapping[str, Any]


class BodyLimit:
    """An ASGI middleware that counts the bytes of each request's body."""

    def __init__(self, app: Any, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Call the application; answer 413 if the body is, or is declared, too large."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = scope["headers"]
        declared = next((value for name, value in headers if name == b"content-length"), b"0")
        if int(declared) > self._max_bytes:
            await self._refuse(send)
            return
        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise HTTPException(413, self._text)
            return message

        await self._app(scope, receive_counted, send)

    @property
    def _text(self) -> str:
        return f"the body has more than {self._max_bytes} bytes"

    async def _refuse(self, send: Callable[[Message], Awaitable[None]]) -> None:
        raw = json_bytes(Problem(413, self._text).body)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(raw)),
        ]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": raw})
