"""Name the periods of a lane, in seconds, and compute deadlines."""

from __future__ import annotations

from collections.abc import Callable

PROBE_S = 0.5  # between two checks of a peer's lock
HELLO_FIRST_S = 0.05
HELLO_MAX_S = 0.5
PING_S = 1.0  # between two pings while all frames are acknowledged
TAIL_PING_S = 0.1  # the same while a frame is not acknowledged
ACK_S = 0.005
ACK_FRAMES = 64
RESEND_S = 0.1  # between two requests for the same missing frames
WHO_S = 0.05  # between two requests to an unknown sender to say hello
DEATH_GRACE_S = 0.05  # libzmq may still hold frames of a dead sender
UNHEARD_S = 5.0  # a receiver that runs and has sent no welcome for so long is a problem
TEND_SOON_S = 0.02  # between two looks at connections while one has much of an unfinished message

NEVER = float("inf")

Clock = Callable[[], float]


def on_grid(now: float, period_s: float) -> float:
    """Return the next multiple of `period_s` after `now`.

    All idle lanes then wake at the same moments: an idle process wakes once for all of them.
    """
    due = (now // period_s + 1) * period_s
    return due if due > now else due + period_s  # 1.0 // 0.1 is 9
