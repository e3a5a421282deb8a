"""Bytes of HTTP that uvicorn does not write."""

from __future__ import annotations

import http
from collections.abc import Iterable

from .json_text import json_bytes
from .problems import Problem

Headers = Iterable[tuple[bytes, bytes]]
OFFERS = {b"upgrade", b"http2-settings"}


def refusal(problem: Problem, headers: Headers) -> bytes:
    """Return a whole response that ends its connection. `headers` are those of each response."""
    body = json_bytes(problem.body)
    phrase = http.HTTPStatus(problem.status).phrase
    lines = [f"HTTP/1.1 {problem.status} {phrase}".encode()]
    lines += [b"%s: %s" % header for header in headers]
    lines += [f"{name}: {value}".encode() for name, value in problem.headers.items()]
    lines += [b"content-type: application/json", b"content-length: %d" % len(body)]
    return b"\r\n".join([*lines, b"connection: close", b"", body])


def head_without_offer(method: bytes, url: bytes, version: str, headers: Headers) -> bytes:
    """Return a request's head without its offer to change the protocol."""
    lines = [b"%s %s HTTP/%s" % (method, url, version.encode())]
    for name, value in headers:
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            value = b", ".join(token for token in tokens if token.lower() not in OFFERS)
            if not value:
                continue
        if name not in OFFERS:
            lines.append(b"%s: %s" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
