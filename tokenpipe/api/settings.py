"""What one API server process is told at its start."""

from __future__ import annotations

from dataclasses import dataclass

from tokenpipe.notify import Notifier
from tokenpipe.topology import Topology


@dataclass(frozen=True, slots=True)
class Settings:
    """Values only, fit to be inherited by a fork (the notifier signs with the pid of its user)."""

    topology: Topology
    endpoint: str
    fd: int  # the listening socket
    plain_text: bool  # prompts of text without a tokenizer are their bytes
    deadline: float  # monotonic time at which the start must be over
    notifier: Notifier
