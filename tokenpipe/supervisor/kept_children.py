"""Apply the topology's policies to the children of one owner: a Supervisor and its Keeper."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tokenpipe.errors import TokenpipeError
from tokenpipe.topology import Topology

from .child import Child, ChildSpec, Died
from .keeper import Awake, Finding, Keeper, Late, Ready, Silent
from .restart_policy import NoRestart, Restart, RestartPolicy
from .supervisor import Supervisor


class KeptChildren:
    """Starts children, kills late and silent ones, decides which dead ones are started again.

    The owner takes deaths from `children.poll()` and calls `died` for each. `died` raises `failure`
    where the child is not started again.
    """

    def __init__(
        self,
        children: Supervisor,
        topology: Topology,
        failure: type[TokenpipeError],
        log: logging.Logger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.children = children
        policies = topology.policies
        self._keeper = Keeper(
            RestartPolicy.of(policies),
            topology.timeouts.stuck_s,
            kill_stuck=policies.on_stuck == "kill",
        )
        self._startup_s = topology.timeouts.startup_s
        self._failure = failure
        self._log = log
        self._clock = clock

    def start(self, spec: ChildSpec, deadline: float = float("inf")) -> Child:
        """Start a child that must be ready at `deadline`. Raises StartupError."""
        child = self.children.start(spec)
        self._keeper.started(spec.role, spec.name, deadline)
        return child

    def start_again(self, spec: ChildSpec) -> Child:
        """Start a dead child again. The child must be ready within `timeouts.startup_s`."""
        return self.start(spec, self._clock() + self._startup_s)

    def look(self) -> None:
        """Log the new findings about living children; kill the children that must be killed."""
        now = self.children.read_notifications()
        for child in self.children.living:
            signs = child.notify.last_sign
            for finding in self._keeper.seen(child.spec.name, child.missing(), signs, now):
                self._act(child, finding)

    @property
    def problems(self) -> dict[str, str]:
        """The problem that each living child had at the last `look`, by the child's name."""
        return self._keeper.problems

    def died(self, died: Died, also: str = "") -> Restart:
        """Log a death, what follows, and `also`. Raises `failure` where no restart follows."""
        verdict = self._keeper.died(died.child.spec.name, self._clock())
        parts = (f"{died.child} {died.how}", str(verdict), also, died.explanation)
        what = "; ".join(filter(None, parts))
        self._log.error("%s", what)
        if isinstance(verdict, NoRestart):
            raise self._failure(what)
        return verdict

    def _act(self, child: Child, finding: Finding) -> None:
        match finding:
            case Late(phase):
                seconds = self._clock() - child.started
                why = f"it was not ready {seconds:.0f} s after its start; phase: {phase}"
                self._log.error("%s is killed, because %s", child, why)
                child.kill(why)
            case Ready():
                self._log.info("%s is ready again", child)
            case Awake(pid):
                self._log.info("%s gives signs of life again", _process(child, pid))
            case Silent(pid, seconds, kill):
                self._silent(child, pid, f"no sign of life for {seconds:.0f} s", kill)

    def _silent(self, child: Child, pid: int, what: str, kill: bool) -> None:
        who = _process(child, pid)
        if not kill:
            self._log.error("%s gave %s; it goes on (policies.on_stuck: report)", who, what)
            return
        self._log.error("%s gave %s; it is killed (policies.on_stuck: kill)", who, what)
        if pid == child.pid:
            child.kill(f"it gave {what}")
        else:
            child.kill_fork(pid)


def _process(child: Child, pid: int) -> str:
    return str(child) if pid == child.pid else f"{child.spec.name}, process {pid},"
