"""The values that the process of an API server is started with."""

from __future__ import annotations

from dataclasses import dataclass

from tokenpipe.notify import Notifier
from tokenpipe.topology import Topology


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """All of them may be inherited by a fork; each of the notifier's messages names its sender."""

    topology: Topology
    endpoint: str  # the instance's directory
    fd: int  # the listening socket
    plain_text: bool  # without a tokenizer a prompt may be text: its tokens are its bytes
    deadline: float  # monotonic time at which the start must be over
    notifier: Notifier
