"""Requests out, tokens in: what an API server embeds.

One core without I/O (`core`); the shells wait on sockets and nothing else. A stream holds what its
consumer has not taken, merges what has piled up, and is bounded.
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
