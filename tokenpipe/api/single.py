"""Serve with one worker: this process itself. There is no fork and no pre-fork manager."""

from __future__ import annotations

import socket

from tokenpipe.errors import StartupError

from .app import make_app
from .owner import ServerOwner
from .server import GracefulServer, make_config
from .server_state import ServerState
from .settings import ApiSettings


def run(settings: ApiSettings, owner: ServerOwner | None = None) -> int:
    """Serve until a signal, or the owner, ends the server; return the exit status.

    With an owner, StartupError is raised if the server did not start.
    """
    state = ServerState(settings, rank="0")
    config = make_config(state, make_app(state, owner))
    server = GracefulServer(config, state, takes_signals=owner is None)
    if owner is not None:
        owner.begins(server)
    with socket.socket(fileno=settings.fd) as sock:
        try:
            server.run(sockets=[sock])
        except SystemExit:  # uvicorn raises it if the lifespan did not start
            if owner is None or state.failure is None:
                raise
            raise StartupError(f"{type(state.failure).__name__}: {state.failure}") from None
    return 0 if server.started else 3
