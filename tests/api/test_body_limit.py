"""A body that is too large is refused by what it says of itself, or as soon as it turns out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from tokenpipe.api.body_limit import BodyLimit

MOST = 10


class Application:
    """Reads a whole body and answers; keeps what it was called with."""

    def __init__(self) -> None:
        self.scope: Any = None
        self.body = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = scope
        more = True
        while more:
            message = await receive()
            self.body += message.get("body", b"")
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})


def call(pieces: list[bytes], length: bytes | None = None, kind: str = "http") -> tuple[Any, Any]:
    """Call the application with a body in pieces; returns it and what was sent."""
    application, sent = Application(), list[Any]()
    left = list(pieces)

    async def receive() -> Any:
        piece = left.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(left)}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"x")] + ([] if length is None else [(b"content-length", length)])
    scope: dict[str, Any] = {"type": kind, "headers": headers, "state": {}}
    asyncio.run(BodyLimit(application, MOST)(scope, receive, send))
    return application, sent


@pytest.mark.parametrize("pieces", [[b""], [b"x" * MOST], [b"x" * 4, b"", b"x" * 6]])
def test_a_body_that_fits_reaches_the_application_whole(pieces: list[bytes]) -> None:
    application, sent = call(pieces, b"%d" % sum(map(len, pieces)))
    assert application.body == b"".join(pieces)
    assert [message["status"] for message in sent] == [200]


def test_a_body_that_says_too_much_is_refused_unread() -> None:
    application, (head, body) = call([], b"%d" % (MOST + 1))
    assert application.scope is None
    assert head["status"] == 413
    said = json.loads(body["body"])["error"]
    assert said["message"] == "the body has more than 10 bytes"
    assert int(dict(head["headers"])[b"content-length"]) == len(body["body"])


@pytest.mark.parametrize("length", [None, b"3"])  # chunked, or a lie
def test_a_body_that_turns_out_too_large_is_refused_at_the_byte_too_many(
    length: bytes | None,
) -> None:
    with pytest.raises(HTTPException) as caught:
        call([b"x" * MOST, b"x"], length)
    assert caught.value.status_code == 413


def test_what_is_no_request_is_passed_on() -> None:
    application, _ = call([b"x" * 99], b"99", kind="lifespan")
    assert application.body == b"x" * 99
