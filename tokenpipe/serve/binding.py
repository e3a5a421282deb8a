"""Bind the server's port before any process starts; the API server inherits the socket."""

from __future__ import annotations

import os
import socket

from tokenpipe.errors import ConfigError


def bind(host: str, port: int, backlog: int) -> socket.socket:
    """Return a listening socket. Port 0 is any free port; a port that is taken is a ConfigError.

    The socket listens at once. Otherwise a second server could bind the port and fail later.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ConfigError(f"api.host {host!r}: {error.strerror}") from None
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(f"api.port {port} on {host}: {reason}") from None
    return sock


def url_of(sock: socket.socket) -> str:
    """Return the URL at which a socket listens."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
