"""Refuse bodies that are too large before they are held in memory."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

from .problems import Problem

Message = MutableMapping[str, Any]


class LimitBody:
    """An ASGI application around another; counts the bytes of each body."""

    def __init__(self, app: Any, most_bytes: int) -> None:
        self._app = app
        self._most = most_bytes

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Pass a call on, unless its body says, or turns out, to be too large."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if int(said) > self._most:
            await self._refuse(send)
            return
        taken = 0
        scope.get("state", {})["send"] = send  # the server's own, for answers of many pieces

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._most:
                raise HTTPException(413, f"the body has more than {self._most} bytes")
            return message

        await self._app(scope, counted, send)

    async def _refuse(self, send: Callable[[Message], Awaitable[None]]) -> None:
        raw = json.dumps(Problem(413, f"the body has more than {self._most} bytes").body).encode()
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(raw)),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": 413, "headers": head})
        await send({"type": "http.response.body", "body": raw})
