"""Decide what becomes of each child of one owner. Pure: no process, no clock, no log.

The owner tells what it sees: a child was started, how it is now, it died. The answer is what is
new, each thing once: the child is late or silent (and may have to be killed), is ready, gives
signs of life again; and after a death, whether the child is started again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .restart_policy import GiveUp, Restart, RestartPolicy


class Late(NamedTuple):
    """The child is not ready at its deadline, and has to be killed."""

    phase: str


class Ready(NamedTuple):
    """The child, which had a deadline, is ready."""


class Silent(NamedTuple):
    """A process of the child gave no sign of life for too long; `kill`: it has to be killed."""

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
    silent: set[int] = field(default_factory=set)  # pids that are reported


class Keeper:
    """The state of the children that live, by name. Times are seconds of any one clock."""

    def __init__(self, policy: RestartPolicy, stuck_s: float, *, kill_stuck: bool) -> None:
        """`stuck_s`: a ready process that is silent for longer is reported, or killed."""
        self._policy = policy
        self._stuck_s = stuck_s
        self._kill_stuck = kill_stuck
        self._kept: dict[str, _Kept] = {}

    def started(self, role: str, child: str, deadline: float = float("inf")) -> None:
        """Begin a life of `child`, a name, which must be ready at `deadline`."""
        self._kept[child] = _Kept(role, deadline, "not ready yet")

    def seen(
        self, child: str, phase: str | None, last_sign: Mapping[int, float], now: float
    ) -> list[Finding]:
        """Return what is new about a living child.

        `phase` is None once it is ready, `last_sign` the time of the last sign of life of each of
        its processes that are ready.
        """
        kept = self._kept[child]
        return [*self._start(kept, phase, now), *self._silence(kept, last_sign, now)]

    def died(self, child: str, now: float) -> Restart | GiveUp:
        """End a life of a child and decide what follows. KeyError where it has ended already."""
        return self._policy.died(self._kept.pop(child).role, child, now)

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong with the children that live, by name; nothing is said of well ones."""
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
