"""Start all processes of a served topology, watch them, and stop them in order.

Importing this room imports no web framework.
"""

from .in_process import run
from .launch import launch
from .processes import ServerFailed

__all__ = [
    "ServerFailed",
    "launch",
    "run",
]
