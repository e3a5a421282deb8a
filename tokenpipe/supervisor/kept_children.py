"""Apply the topology's policies to the children of one owner: a Supervisor and its Keeper."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from tokenpipe.errors import LaneError, StartupError, TokenpipeError
from tokenpipe.topology import Topology

from .child import Child, ChildSpec, Died
from .keeper import Awake, Finding, Keeper, Late, Ready, Silent
from .restart_policy import NoRestart, Restart, RestartPolicy
from .supervisor import Supervisor

FIRST_PAUSE_S = 1.0  # after a start that failed; each further one doubles it
MOST_PAUSE_S = 30.0
FROZEN_S = 3.0  # between two looks: the process was stopped, or its machine was


class _Waiting(NamedTuple):
    """A child whose last start failed, for want of descriptors, say."""

    spec: ChildSpec
    start: Callable[[], object]
    due: float
    pause_s: float
    why: str


class KeptChildren:
    """Starts children, kills late and silent ones, decides which dead ones are started again.

    The owner takes deaths from `children.poll()` and calls `died` for each. `died` raises `failure`
    if the child is not started again.
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
        self._waiting: dict[str, _Waiting] = {}
        self._looked = float("inf")  # when `look` was called last
        self._startup_s = topology.timeouts.startup_s
        self._failure = failure
        self._log = log
        self._clock = clock

    def start(self, spec: ChildSpec, deadline: float = float("inf")) -> Child:
        """Start a child that must be ready at `deadline`. Raises StartupError."""
        child = self.children.start(spec)
        self._keeper.started(spec.role, spec.name, deadline)
        return child

    def start_again(self, spec: ChildSpec, start: Callable[[], object] | None = None) -> None:
        """Start a dead child again.

        `start` does it; by default the child must be ready within `timeouts.startup_s`. If `start`
        raises OSError, StartupError or LaneError, this counts like a death, and `retry` tries again
        after a pause. Raises `failure` once no further restart is allowed.
        """
        self._attempt(spec, start or (lambda: self._start_again(spec)), FIRST_PAUSE_S)

    def _start_again(self, spec: ChildSpec) -> None:
        self.start(spec, self._clock() + self._startup_s)

    def _attempt(self, spec: ChildSpec, start: Callable[[], object], pause_s: float) -> None:
        self._waiting.pop(spec.name, None)
        try:
            start()
        except StartupError as error:
            self._not_started(spec, start, pause_s, str(error))
        except (OSError, LaneError) as error:
            self._not_started(spec, start, pause_s, f"{spec.name} cannot be started: {error}")

    def _not_started(
        self, spec: ChildSpec, start: Callable[[], object], pause_s: float, why: str
    ) -> None:
        now = self._clock()
        verdict = self._keeper.not_started(spec.role, spec.name, now)
        if isinstance(verdict, NoRestart):
            what = f"{why}; {verdict}"
            self._log.error("%s", what)
            raise self._failure(what)
        self._log.error("%s; %s, in %g s", why, verdict, pause_s)
        self._waiting[spec.name] = _Waiting(spec, start, now + pause_s, pause_s, why)

    def retry(self) -> None:
        """Start the children again whose start failed. Raises `failure` as `start_again` does."""
        now = self._clock()
        for child in [each for each in self._waiting.values() if each.due <= now]:
            self._attempt(child.spec, child.start, min(child.pause_s * 2, MOST_PAUSE_S))

    def look(self) -> None:
        """Log the new findings about living children; kill the children that must be killed."""
        now = self.children.read_notifications()
        frozen = now - self._looked
        self._looked = now
        if frozen > FROZEN_S:  # the children perhaps did not run either
            self._log.warning("nothing ran here for %.0f s; all times are counted anew", frozen)
            self._keeper.delay(frozen)
            for child in self.children.living:
                child.notify.forgive(now)
        for child in self.children.living:
            signs = child.notify.last_sign
            for finding in self._keeper.seen(child.spec.name, child.missing(), signs, now):
                self._act(child, finding)

    @property
    def problems(self) -> dict[str, str]:
        """The problem of each child that had one at the last `look`, by the child's name."""
        waiting = {name: f"{child.why}; it is tried again" for name, child in self._waiting.items()}
        said = {c.spec.name: c.notify.problem for c in self.children.living if c.notify.problem}
        return {**said, **self._keeper.problems, **waiting}

    def died(self, died: Died, also: str = "") -> Restart:
        """Log a death, what follows, and `also`. Raises `failure` if no restart follows."""
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
