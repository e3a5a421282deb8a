"""Decide after a death whether the child is started again. Pure: no process, no clock."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from typing_extensions import Self

from tokenpipe.topology import Policies


class Restart(NamedTuple):
    """The child is started again. This is restart `number`; `most` are allowed in `within_s`."""

    number: int
    most: int
    within_s: float

    def __str__(self) -> str:
        return f"restart {self.number} of {self.most} within {self.within_s:g} s"


class NoRestart(NamedTuple):
    """The child is not started again."""

    why: str

    def __str__(self) -> str:
        return f"it is not started again: {self.why}"


class RestartPolicy:
    """Allows each child `restarts` restarts in `within_s` seconds."""

    def __init__(self, restarts: int, within_s: float, never: frozenset[str] = frozenset()) -> None:
        """`never`: the roles whose children are not started again."""
        self._restarts = restarts
        self._within_s = within_s
        self._never = never
        self._taken: dict[str, deque[float]] = {}  # times of restarts, by child

    @classmethod
    def of(cls, policies: Policies, processes: int = 1) -> Self:
        """Make the policy of a topology. `processes`: how many processes each child stands for."""
        never = {role for role, value in policies if value == "fail"}
        return cls(policies.restarts * processes, policies.within_s, frozenset(never))

    def died(self, role: str, child: str, now: float) -> Restart | NoRestart:
        """Decide what follows the death of the child with this name; a Restart is counted."""
        if role in self._never:
            return NoRestart(f"policies.{role} is fail")
        taken = self._taken.setdefault(child, deque())
        while taken and now - taken[0] >= self._within_s:
            taken.popleft()
        if len(taken) >= self._restarts:
            budget = f"{self._restarts} restart(s) within {self._within_s:g} s"
            return NoRestart(f"all {budget} are used up")
        taken.append(now)
        return Restart(len(taken), self._restarts, self._within_s)
