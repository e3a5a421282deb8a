"""Send the cancels of a client's core to the engine."""

from __future__ import annotations

from typing import Any

from .client_core import ClientCore
from .lanes import Lanes

_MESSAGES_PER_FRAME = 4096


def send_cancels(lanes: Lanes, core: ClientCore[Any]) -> None:
    """Send the core's cancels as far as the lane has room. The others wait for the next turn."""
    messages = core.take_outgoing()
    for start in range(0, len(messages), _MESSAGES_PER_FRAME):
        if not lanes.try_send(messages[start : start + _MESSAGES_PER_FRAME]):
            core.put_back(messages[start:])
            return
