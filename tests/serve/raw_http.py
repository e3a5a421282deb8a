"""HTTP as bytes on a socket, for callers that no client library plays."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

from tests.serve.running import Running

HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"


def call(body: Any, path: str = "/v1/completions", version: str = "1.1", more: str = "") -> bytes:
    """Return the bytes of a POST."""
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/{version}\r\nhost: x\r\ncontent-type: application/json\r\n{more}"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(raw) + raw


def connect(server: Running, sent: bytes = b"") -> socket.socket:
    """Return a connection on which these bytes are sent."""
    host, port = server.url.removeprefix("http://").split(":")
    sock = socket.create_connection((host, int(port)), timeout=20)
    sock.sendall(sent)
    return sock


def reset(sock: socket.socket) -> None:
    """Close a connection with a RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def read_all(sock: socket.socket) -> bytes:
    """Read until the other side closes the connection."""
    found = b""
    while more := sock.recv(65536):
        found += more
    return found
