"""The header x-request-id comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tokenpipe.api.request_id import RequestIdEcho, id_header


def headers_of(asked: list[tuple[bytes, bytes]], answered: list[tuple[bytes, bytes]]) -> Any:
    sent: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": answered})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Any:
        raise AssertionError("nothing reads the body")

    async def send(message: Any) -> None:
        sent.append(message)

    state: dict[str, Any] = {}
    scope = {"type": "http", "headers": asked, "state": state}
    asyncio.run(RequestIdEcho(application)(scope, receive, send))
    assert state["send"] is send and len(sent) == 2
    return sent[0]["headers"]


@pytest.mark.case("F30")
def test_a_response_has_the_id_of_its_call_or_its_own() -> None:
    given, other = (b"x-request-id", b"mine"), (b"content-type", b"text/plain")
    own = (b"X-Request-Id", b"own")
    assert headers_of([given], [other]) == [other, given]
    assert headers_of([given], [own]) == [own]
    assert headers_of([other], [other]) == [other]


def test_an_id_that_no_header_can_hold_is_left_out() -> None:
    assert id_header("abc 1") == [(b"x-request-id", b"abc 1")]
    assert id_header("a\r\nb") == id_header("日本") == []
