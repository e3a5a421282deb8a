"""Send requests. A request whose output cannot be read must not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tokenpipe._core import Stream
from tokenpipe.wire import Submit

from .client_core import ClientCore
from .lanes import Lanes

S = TypeVar("S", bound=Stream)


def send_requests(lanes: Lanes, core: ClientCore[S], submits: Sequence[Submit]) -> list[S]:
    """Send requests and return a stream for each. After an exception none of them runs.

    Raises what `Lanes.send` raises, and TypeError or ValueError where a stream cannot be opened.
    """
    streams = core.open(submits)  # before sending: a request without a stream must not run
    before = lanes.sent
    try:
        lanes.send(submits)
    except BaseException:
        if lanes.sent == before:
            core.withdraw(streams)
        else:  # the frame was sent, and then something raised, such as a signal handler
            for stream in streams:
                stream.drop()
        raise
    return streams
