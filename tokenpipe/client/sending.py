"""Send requests. A request whose output cannot be read must not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tokenpipe._core import Stream
from tokenpipe.errors import LaneLost
from tokenpipe.wire import Submit

from .client_core import ClientCore
from .lanes import Lanes

S = TypeVar("S", bound=Stream)


def send_requests(lanes: Lanes | None, core: ClientCore[S], submits: Sequence[Submit]) -> list[S]:
    """Send requests and return a stream for each. After an exception none of them runs.

    While the engine is started again (`lanes` is None, or it has just died), they wait in the core.
    Raises what `Lanes.send` raises, and TypeError or ValueError if a stream cannot be opened.
    """
    streams = core.open(submits)  # before sending: a request without a stream must not run
    if lanes is None:
        return streams
    before = lanes.sent
    try:
        lanes.send(submits)
    except LaneLost as error:
        if not core.restarts:
            core.withdraw(streams)
            raise
        lanes.engine_gone = f"the engine is gone: {error}"
        core.engine_lost(LaneLost(lanes.engine_gone))
    except BaseException:
        if lanes.sent == before:
            core.withdraw(streams)
        else:  # the frame was sent, and then something raised, such as a signal handler
            for stream in streams:
                stream.drop()
        raise
    return streams
