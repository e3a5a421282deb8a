"""Submit requests and receive their tokens. An API server embeds this room.

`client_core` has the logic and does no I/O. `aio` and `sync` wait on sockets. A stream holds the
output that its consumer has not taken: it merges that output and bounds its size.
"""

from .aio import AsyncClient
from .client_core import ClientCore
from .streams import AsyncSamples, AsyncStream, SyncStream
from .sync import Client

__all__ = [
    "AsyncClient",
    "AsyncSamples",
    "AsyncStream",
    "Client",
    "ClientCore",
    "SyncStream",
]
