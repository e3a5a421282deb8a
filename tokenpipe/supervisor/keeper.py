"""Decide what happens to each child of one owner. Pure: no process, no clock, no log.

The owner reports what it sees: a child was started, its present state, its death. The keeper
answers with each new finding once: the child is late, silent, ready, or gives signs of life
again. After a death the keeper says whether the child is started again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .restart_policy import NoRestart, Restart, RestartPolicy


class Late(NamedTuple):
    """The child is not ready at its deadline. The owner must kill it."""

    phase: str


class Ready(NamedTuple):
    """A child that had a deadline is ready."""


class Silent(NamedTuple):
    """A process of the child gave no sign of life for `seconds`. `kill`: the owner must kill it."""

    pid: int
    seconds: float
    kill: bool


class Awake(NamedTuple):
    """A process of the child that was silent gives signs of life again."""

    pid: int


Finding = Late | Ready | Silent | Awake


@dataclass(slots=True)
class _Kept:
    role: str
    deadline: float
    problem: str = ""
    ready: bool = False
    late: bool = False
    silent: set[int] = field(default_factory=set)  # pids whose silence was reported


class Keeper:
    """Holds the state of the living children by name. Times are in seconds, all of one clock."""

    def __init__(self, policy: RestartPolicy, stuck_s: float, *, kill_stuck: bool) -> None:
        """`stuck_s`: the longest silence of a ready process; then it is reported, or killed."""
        self._policy = policy
        self._stuck_s = stuck_s
        self._kill_stuck = kill_stuck
        self._kept: dict[str, _Kept] = {}

    def started(self, role: str, child: str, deadline: float = float("inf")) -> None:
        """Note that the child with the name `child` was started and must be ready at `deadline`."""
        self._kept[child] = _Kept(role, deadline, "not ready yet")

    def seen(
        self, child: str, phase: str | None, last_sign: Mapping[int, float], now: float
    ) -> list[Finding]:
        """Return the new findings about a living child.

        `phase` is None once the child is ready. `last_sign` maps the pid of each ready process of
        the child to the time of its last sign of life.
        """
        kept = self._kept[child]
        return [*self._start(kept, phase, now), *self._silence(kept, last_sign, now)]

    def delay(self, seconds: float) -> None:
        """Move all deadlines: the owner itself did not run for so long."""
        for kept in self._kept.values():
            kept.deadline += seconds

    def died(self, child: str, now: float) -> Restart | NoRestart:
        """Forget a dead child and decide what follows. KeyError for a child that is not alive."""
        return self._policy.died(self._kept.pop(child).role, child, now)

    def not_started(self, role: str, child: str, now: float) -> Restart | NoRestart:
        """Count a start that failed like a death, and decide what follows."""
        return self._policy.died(role, child, now)

    @property
    def problems(self) -> dict[str, str]:
        """The problem of each living child that has one, by the child's name."""
        return {child: kept.problem for child, kept in self._kept.items() if kept.problem}

    def _start(self, kept: _Kept, phase: str | None, now: float) -> Iterable[Finding]:
        if kept.ready or kept.late:
            return
        if phase is None:
            kept.ready = True
            kept.problem = ""
            if kept.deadline < float("inf"):
                yield Ready()
        elif now > kept.deadline:
            kept.late = True
            kept.problem = f"was not ready in time; phase: {phase}"
            yield Late(phase)
        else:
            kept.problem = f"not ready yet; phase: {phase}"

    def _silence(
        self, kept: _Kept, last_sign: Mapping[int, float], now: float
    ) -> Iterable[Finding]:
        silence = {pid: now - at for pid, at in last_sign.items() if now - at > self._stuck_s}
        for pid in sorted(silence.keys() - kept.silent):
            yield Silent(pid, silence[pid], self._kill_stuck)
        for pid in sorted((kept.silent & last_sign.keys()) - silence.keys()):
            yield Awake(pid)
        if kept.ready:
            longest = max(silence.values(), default=0.0)
            kept.problem = f"no sign of life for {longest:.0f} s" if silence else ""
        kept.silent = set(silence)
