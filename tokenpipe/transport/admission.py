"""Decide whether a sender may use the lane. Pure."""

from __future__ import annotations

from .lane_messages import LaneMessage
from .peer import Peer, Role


def refusal(
    hello: LaneMessage, *, instance: int, me: Peer, expects: Role, since_ns: int
) -> tuple[str, str] | None:
    """Return (code, detail) of the reason to refuse a hello, or None to welcome it.

    `since_ns` is the time at which the last welcomed sender was made (ns, monotonic clock).
    """
    fields = hello.fields
    if hello.instance != instance:
        return "instance", f"this is instance {instance:x}, not {hello.instance:x}"
    if (fields["role"], fields["rank"]) != expects:
        return "role", f"{me} expects {expects} here, not {fields['role']} {fields['rank']}"
    if fields["pinned"] and hello.target != me.incarnation:
        return "receiver", f"{me} was restarted"
    if fields["since_ns"] < since_ns:
        # Bytes of a dead sender may be read after those of its successor.
        return "stale", f"a later {expects} has said hello"
    return None
