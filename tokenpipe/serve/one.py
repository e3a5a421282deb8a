"""Serve with one worker: this very process, no fork, no pre-fork manager."""

from __future__ import annotations

import socket

from .app import make_app
from .server import DrainingServer, make_config
from .settings import Settings
from .state import ServerState


def run(settings: Settings) -> int:
    """Serve until told to stop; return the exit status."""
    state = ServerState(settings, rank="0")
    server = DrainingServer(make_config(settings, make_app(state)), state)
    with socket.socket(fileno=settings.fd) as sock:
        server.run(sockets=[sock])
    return 0 if server.started else 3
