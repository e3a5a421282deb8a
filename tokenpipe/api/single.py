"""Serve with one worker: this very process, no fork, no pre-fork manager."""

from __future__ import annotations

import socket

from tokenpipe.errors import StartupError

from .app import make_app
from .owner import Owner
from .server import DrainingServer, make_config
from .server_state import ServerState
from .settings import Settings


def run(settings: Settings, owner: Owner | None = None) -> int:
    """Serve until told to stop; return the exit status. StartupError where it has an owner."""
    state = ServerState(settings, rank="0")
    config = make_config(settings, make_app(state, owner))
    server = DrainingServer(config, state, takes_signals=owner is None)
    if owner is not None:
        owner.begins(server)
    with socket.socket(fileno=settings.fd) as sock:
        try:
            server.run(sockets=[sock])
        except SystemExit:  # uvicorn's word for a lifespan that did not start
            if owner is None or state.failure is None:
                raise
            raise StartupError(f"{type(state.failure).__name__}: {state.failure}") from None
    return 0 if server.started else 3
