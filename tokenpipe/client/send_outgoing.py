"""Send the messages of a client's core to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from tokenpipe.errors import FrameTooLarge
from tokenpipe.wire import Cancel, Submit

from .client_core import ClientCore
from .lanes import Lanes

_MESSAGES_PER_FRAME = 4096


def send_outgoing(lanes: Lanes, core: ClientCore[Any]) -> None:
    """Send the core's messages as far as the lane has room. The others wait for the next turn."""
    messages = core.take_outgoing()
    done = 0
    for is_cancel, group in groupby(messages, lambda message: isinstance(message, Cancel)):
        for part in _parts(list(group), _MESSAGES_PER_FRAME if is_cancel else 1):
            try:
                sent = lanes.try_send(part)
            except FrameTooLarge as error:  # the new engine has smaller bounds
                core.refuse(part, str(error))
                sent = True
            if not sent:
                core.put_back(messages[done:])
                return
            done += len(part)


def _parts(messages: list[Cancel | Submit], size: int) -> Sequence[list[Cancel | Submit]]:
    return [messages[start : start + size] for start in range(0, len(messages), size)]
