"""Wait for a lane's welcome, and tell who waits for itself."""

from __future__ import annotations

from tokenpipe.errors import StartupError
from tokenpipe.instance import Instance

from .peer import Role
from .sender import LaneSender

ENGINE = Role("engine", "0")
ALONE_S = 1.0  # for a thread to begin that polls the pipeline instead of this one


def wait_welcome(lane: LaneSender, instance: Instance, to: Role, timeout_s: float) -> None:
    """Say hello until welcomed, as `LaneSender.wait_ready` does and with its errors.

    Where this process is the one that must answer, the error says so; and where that is the very
    thread that waits here, nobody will, and it comes within a second.
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
            lane.wait_ready(timeout_s - first)  # another thread has begun to
    except StartupError as error:
        raise StartupError(
            f"{error}. This process owns the pipeline: poll it in another thread than the one "
            "that waits here, or use an AsyncClient in its event loop"
        ) from None


def _waits_for_itself(instance: Instance) -> bool:
    claim = instance.own(*ENGINE)
    return claim is not None and claim.attended_here
