"""The rhythms of a lane, in seconds, and the one shape a deadline has here."""

from __future__ import annotations

from collections.abc import Callable

PROBE_S = 0.5  # how often a peer's lock is looked at
HELLO_FIRST_S = 0.05
HELLO_MAX_S = 0.5
PING_S = 1.0  # while nothing is on its way
TAIL_PING_S = 0.1  # while something is, and no acknowledgement comes
ACK_S = 0.005
ACK_FRAMES = 64
RESEND_S = 0.1  # how often missing frames are asked for
WHO_S = 0.05  # how often a stranger is asked to say hello
DEATH_GRACE_S = 0.05  # what a dead sender had sent may still be in libzmq's hands

NEVER = float("inf")

Clock = Callable[[], float]


def on_grid(now: float, period_s: float) -> float:
    """Return the next multiple of a period after `now`.

    Lanes that have nothing to do wake at the same moments, so that an idle process wakes once for
    all of them.
    """
    return (now // period_s + 1) * period_s
