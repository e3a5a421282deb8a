"""Binding the server's port."""

from __future__ import annotations

import socket

import pytest

from tokenpipe.errors import ConfigError
from tokenpipe.serve.binding import bind, url_of


@pytest.mark.case("B15")
def test_port_is_bound_once_and_a_taken_one_is_named() -> None:
    with bind("127.0.0.1", 0, 8) as sock:
        port = sock.getsockname()[1]
        assert url_of(sock) == f"http://127.0.0.1:{port}"
        with pytest.raises(ConfigError, match=rf"api\.port {port} on 127\.0\.0\.1: .*in use"):
            bind("127.0.0.1", port, 8)
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass  # it listens before anybody serves it
