"""Send requests, so that none runs whose output nobody can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tokenpipe._core import Stream
from tokenpipe.wire import Submit

from .client_core import ClientCore
from .lanes import Lanes

S = TypeVar("S", bound=Stream)


def send_requests(lanes: Lanes, core: ClientCore[S], submits: Sequence[Submit]) -> list[S]:
    """Send requests and return a stream for each; after an exception none of them runs.

    Raises what `Lanes.send` does, and TypeError or ValueError for what no stream can have.
    """
    streams = core.open(submits)  # first: what cannot be opened must not run
    before = lanes.sent
    try:
        lanes.send(submits)
    except BaseException:
        if lanes.sent == before:
            core.withdraw(streams)
        else:  # it raised behind the sending, as a signal's handler may
            for stream in streams:
                stream.drop()
        raise
    return streams
