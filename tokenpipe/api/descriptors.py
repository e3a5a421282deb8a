"""How many connections the limit of open descriptors allows."""

from __future__ import annotations

import os
import resource

ACCEPTS = 16  # connections that one turn of the loop accepts
OWN = 64  # descriptors that a process opens later: lanes of a new engine, files, the asks of aborts
SPARE = 16  # connections above the bound, for the time that their refusal takes
MOST = 65_536  # connections, if the limit of descriptors is very high
FEWEST = 8  # even below a limit that leaves no room


def connection_bound(given: int | None) -> int:
    """Return how many connections this process may have; `given` is the topology's number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return given or MOST
    # Accepted connections are not counted before the next turn of the loop but one.
    room = soft - len(os.listdir("/proc/self/fd")) - OWN - 2 * ACCEPTS - SPARE
    return min(given or MOST, max(room, FEWEST))


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open descriptors to the hard one. Child processes inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
