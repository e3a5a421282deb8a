"""Start, watch and end the processes of one server, as the topology's policies say."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from signal import SIGKILL, SIGTERM

from tokenpipe.errors import TokenpipeError
from tokenpipe.supervisor import ChildSpec, KeptChildren

from .server_resources import ServerResources
from .signals import SecondSignal, StopSignals

LOOK_S = 0.25  # between two looks at the children
REPORT_S = 1.0  # past the deadline, for a late child to report by itself why it is late
_log = logging.getLogger("tokenpipe.serve")


class ServerFailed(TokenpipeError):
    """A process died and is not started again. The text names it, with the reasons and its log."""


class ServerProcesses:
    """The children of one server, one of each role. Used by one thread."""

    def __init__(
        self, resources: ServerResources, signals: StopSignals, specs: Sequence[ChildSpec]
    ) -> None:
        """Start nothing yet."""
        self.children = resources.children
        self.signals = signals
        self._topology = resources.topology
        self._reservation = resources.reservation
        self._specs = {spec.role: spec for spec in specs}
        self._kept = KeptChildren(self.children, self._topology, ServerFailed, _log)

    def start(self, deadline: float) -> None:
        """Start all children at once, so that they import their modules side by side."""
        specs = self._specs.values()
        self._first = [self._kept.start(_with_deadline(spec, deadline)) for spec in specs]

    def wait_ready(self, deadline: float) -> bool:
        """Wait until all children are ready; return False if a signal came first.

        Raises StartupError.
        """

        def pump(seconds: float) -> None:
            self.signals.wait(self.children, seconds)
            if self.signals.first:
                raise InterruptedError

        left = deadline - time.monotonic() + REPORT_S
        try:
            self.children.wait_ready({child: child.missing for child in self._first}, left, pump)
        except InterruptedError:
            return False
        return True

    def look(self) -> None:
        """Start dead children again, kill late or silent ones. Raises ServerFailed.

        Make the instance's directory again if another program removed it.
        """
        self._reservation.keep()
        for died in self.children.poll():
            self._kept.died(died)
            self._start_again(died.child.spec.role)
        self._kept.retry()
        self._kept.look()

    def _start_again(self, role: str) -> None:
        spec = self._specs[role]

        def start() -> None:
            if role == "engine":
                self._reservation.clear()
            deadline = time.monotonic() + self._topology.timeouts.startup_s
            self._kept.start(_with_deadline(spec, deadline), deadline + REPORT_S)

        self._kept.start_again(spec, start)

    def end(self, role: str, timeout_s: float) -> None:
        """Ask the child of a role to end, and kill it after `timeout_s`.

        Raises SecondSignal if a second signal comes meanwhile.
        """
        children = [child for child in self.children.living if child.spec.role == role]
        for child in children:
            child.signal(SIGTERM)
        deadline = time.monotonic() + timeout_s
        while any(child.died is None for child in children):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            if self.signals.second:
                raise SecondSignal(self.signals.second)
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
