"""Wait for a lane's welcome, and report a process that waits for its own answer."""

from __future__ import annotations

from tokenpipe.errors import StartupError
from tokenpipe.instance import Instance

from .peer import Role
from .sender import LaneSender

ENGINE = Role("engine", "0")
ALONE_S = 1.0  # time for another thread to begin to poll the pipeline


def wait_welcome(lane: LaneSender, instance: Instance, to: Role, timeout_s: float) -> None:
    """Wait until the receiver welcomes the lane. Raises what `LaneSender.wait_ready` raises.

    If this process itself owns the receiver, the error says so. If the waiting thread is the one
    that polls the pipeline, nobody can answer, and the error comes within a second.
    """
    if instance.own(*to) is None:
        lane.wait_ready(timeout_s)
        return
    first = min(ALONE_S, timeout_s) if _waits_for_itself(instance) else timeout_s
    try:
        try:
            lane.wait_ready(first)
        except StartupError:
            if first == timeout_s or _waits_for_itself(instance):
                raise
            lane.wait_ready(timeout_s - first)  # another thread polls the pipeline now
    except StartupError as error:
        raise StartupError(
            f"{error}. This process owns the pipeline: poll the pipeline in another thread, "
            "or use an AsyncClient in the event loop that polls it"
        ) from None


def _waits_for_itself(instance: Instance) -> bool:
    claim = instance.own(*ENGINE)
    return claim is not None and claim.attended_here
