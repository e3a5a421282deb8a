"""The processes of one server: start them, watch them, end them, as the topology's policies say."""

from __future__ import annotations

import logging
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from signal import SIGKILL, SIGTERM

from tokenpipe.errors import TokenpipeError
from tokenpipe.instance import Reservation, default_base, sweep
from tokenpipe.layout import layout_of
from tokenpipe.supervisor import ChildSpec, KeptChildren, Supervisor
from tokenpipe.topology import Topology

from .binding import bind
from .signals import Interrupted, Signals

LOOK_S = 0.25
OWN_WORD_S = 1.0  # a child that misses the deadline says why itself, if it still can
_log = logging.getLogger("tokenpipe.serve")


class ServerFailed(TokenpipeError):
    """A process died and is not started again; says which, how, and its last words."""


@dataclass(frozen=True, slots=True)
class Premises:
    """What a server has before anything starts: its port, and its instance's directory.

    `topology` has the port and the log directory filled in.
    """

    topology: Topology
    sock: socket.socket
    reservation: Reservation
    children: Supervisor

    @property
    def endpoint(self) -> str:
        """The directory, also before and between the lives of its engine."""
        return str(self.reservation.directory)


def named(topology: Topology) -> Topology:
    """Give a topology that has no name a random one."""
    return topology if topology.name else topology.replaced(name=f"s{secrets.token_hex(4)}")


@contextmanager
def premises(topology: Topology) -> Iterator[Premises]:
    """Bind the port, remove what dead instances left, keep the directory; give all of it back.

    `topology` is one that is named. Raises ConfigError (a port that is taken, a wrong directory)
    or LaneBusy.
    """
    assert topology.name, "see named()"
    with bind(topology.api.host, topology.api.port, topology.api.backlog) as sock:
        for swept in sweep(topology.runtime_dir or default_base()):
            if swept.outcome == "removed":
                _log.info("removed what a dead instance left: %s", swept.directory)
        longest = max((lane.socket for lane in layout_of(topology).lanes), key=len)
        reservation = Reservation.take(topology.runtime_dir, topology.name, longest_lane=longest)
        log_dir = topology.log_dir or reservation.directory / "logs"
        try:
            port = sock.getsockname()[1]
            effective = topology.replaced(log_dir=log_dir, api={"port": port})
            with Supervisor(log_dir) as children:
                yield Premises(effective, sock, reservation, children)
        finally:
            reservation.close(logs=topology.log_dir is None)


class Household:
    """The children of one server, one of each role. Used by one thread."""

    def __init__(self, place: Premises, signals: Signals, specs: Sequence[ChildSpec]) -> None:
        """Start nothing yet."""
        self.children = place.children
        self.signals = signals
        self._topology = place.topology
        self._reservation = place.reservation
        self._specs = {spec.role: spec for spec in specs}
        self._kept = KeptChildren(place.children, place.topology, ServerFailed, _log)

    def start(self, deadline: float) -> None:
        """Start all, side by side: long imports of one pass while another starts."""
        specs = self._specs.values()
        self._first = [self._kept.start(_with_deadline(spec, deadline)) for spec in specs]

    def wait_ready(self, deadline: float) -> bool:
        """Wait until all are ready; False where a signal came first. Raises StartupError."""

        def pump(seconds: float) -> None:
            self.signals.wait(self.children, seconds)
            if self.signals.first:
                raise InterruptedError

        left = deadline - time.monotonic() + OWN_WORD_S
        try:
            self.children.wait_ready({child: child.missing for child in self._first}, left, pump)
        except InterruptedError:
            return False
        return True

    def look(self) -> None:
        """Act on deaths, and on children that are late or silent. Raises ServerFailed."""
        for died in self.children.poll():
            self._kept.died(died)
            self._start_again(died.child.spec.role)
        self._kept.look()

    def _start_again(self, role: str) -> None:
        if role == "engine":
            self._reservation.clear()
        deadline = time.monotonic() + self._topology.timeouts.startup_s
        self._kept.start(_with_deadline(self._specs[role], deadline), deadline + OWN_WORD_S)

    def end(self, role: str, timeout_s: float) -> None:
        """Ask a role to end, at the deadline make it. Raises Interrupted by a second signal."""
        children = [child for child in self.children.living if child.spec.role == role]
        for child in children:
            child.signal(SIGTERM)
        deadline = time.monotonic() + timeout_s
        while any(child.died is None for child in children):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            if self.signals.second:
                raise Interrupted(self.signals.second)
            self.signals.wait(self.children, left)
            for died in self.children.poll():
                if died.child not in children or died.returncode != 0:
                    _log.error("%s", died)
        for died in self.children.stop(0.0, children):
            _log.error("%s did not end within %g s; it was killed", died.child, timeout_s)

    def kill(self) -> None:
        """Kill all children now."""
        for child in self.children.living:
            child.signal(SIGKILL)
        _log.warning("all processes are killed, because a second signal came")


def _with_deadline(spec: ChildSpec, deadline: float) -> ChildSpec:
    return replace(spec, args=(*spec.args, "--deadline", f"{deadline:.3f}"))
