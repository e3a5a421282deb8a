"""What a server has before anything starts: its port, its instance's directory, its Supervisor."""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tokenpipe.instance import Reservation, default_base, sweep
from tokenpipe.layout import layout_of
from tokenpipe.supervisor import Supervisor
from tokenpipe.topology import Topology

from .binding import bind

_log = logging.getLogger("tokenpipe.serve")


@dataclass(frozen=True, slots=True)
class ServerResources:
    """The resources of one server. `topology` has the port and the log directory filled in."""

    topology: Topology
    sock: socket.socket
    reservation: Reservation
    children: Supervisor

    @property
    def endpoint(self) -> str:
        """The instance's directory. It is there before the engine starts and after it ends."""
        return str(self.reservation.directory)


def with_name(topology: Topology) -> Topology:
    """Return a topology that has a name: its own, or a random one."""
    return topology if topology.name else topology.replaced(name=f"s{secrets.token_hex(4)}")


@contextmanager
def server_resources(topology: Topology) -> Iterator[ServerResources]:
    """Bind the port, remove the directories of dead instances, take a directory; then free all.

    The topology must have a name, see `with_name`. Raises ConfigError (a port that is taken, a
    wrong directory) or LaneBusy (a living instance has that name).
    """
    assert topology.name, "see with_name()"
    with bind(topology.api.host, topology.api.port, topology.api.backlog) as sock:
        for swept in sweep(topology.runtime_dir or default_base()):
            if swept.outcome == "removed":
                _log.info("removed the directory of a dead instance: %s", swept.directory)
        longest = max((lane.socket for lane in layout_of(topology).lanes), key=len)
        reservation = Reservation.take(topology.runtime_dir, topology.name, longest_lane=longest)
        log_dir = topology.log_dir or reservation.directory / "logs"
        try:
            port = sock.getsockname()[1]
            effective = topology.replaced(log_dir=log_dir, api={"port": port})
            with Supervisor(log_dir) as children:
                yield ServerResources(effective, sock, reservation, children)
        finally:
            reservation.close(logs=topology.log_dir is None)
