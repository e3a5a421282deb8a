"""Responses and heads that uvicorn does not write."""

from __future__ import annotations

import json

from tokenpipe.api.http_bytes import head_without_offer, refusal
from tokenpipe.api.problems import Problem, unavailable


def test_a_refusal_is_a_whole_response() -> None:
    head, body = refusal(Problem(431, "the head"), [(b"date", b"now")]).split(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    assert status == "HTTP/1.1 431 Request Header Fields Too Large"
    assert set(lines) == {
        "date: now",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
    }
    assert json.loads(body)["error"]["message"] == "the head"
    assert b"\r\nretry-after: 1\r\n" in refusal(unavailable("x"), ())


def test_an_offer_is_left_out_and_nothing_else() -> None:
    head = head_without_offer(
        b"POST",
        b"/v1?x=1",
        "1.1",
        [
            (b"host", b"x"),
            (b"connection", b"Upgrade, close , HTTP2-Settings"),
            (b"upgrade", b"h2c"),
            (b"http2-settings", b"AAMA"),
            (b"content-length", b"5"),
        ],
    )
    lines = b"POST /v1?x=1 HTTP/1.1", b"host: x", b"connection: close", b"content-length: 5"
    assert head == b"\r\n".join([*lines, b"", b""])
    assert head_without_offer(b"GET", b"/", "1.0", [(b"connection", b"upgrade")]) == (
        b"GET / HTTP/1.0\r\n\r\n"
    )
