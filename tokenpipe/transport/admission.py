"""Judge a hello: may this sender have the lane? Pure."""

from __future__ import annotations

from .lane_messages import LaneMessage
from .peer import Peer, Role


def refusal(
    hello: LaneMessage, *, instance: int, me: Peer, expects: Role, since_ns: int
) -> tuple[str, str] | None:
    """Return (code, detail) of what speaks against a hello, or None.

    `since_ns` is when the last sender that was welcomed began to exist.
    """
    fields = hello.fields
    if hello.instance != instance:
        return "instance", f"this is instance {instance:x}, not {hello.instance:x}"
    if (fields["role"], fields["rank"]) != expects:
        return "role", f"{me} expects {expects} here, not {fields['role']} {fields['rank']}"
    if fields["pinned"] and hello.target != me.incarnation:
        return "receiver", f"this is another life of {me}"
    if fields["since_ns"] < since_ns:
        # Bytes of the dead may be read after those of their successor.
        return "stale", f"a later {expects} has said hello"
    return None
