"""Attach to the instance again after its engine died, in small steps that never block."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from tokenpipe.errors import LaneLost, TokenpipeError
from tokenpipe.instance import Instance
from tokenpipe.topology import Topology

from .lanes import Lanes
from .opening import Opening

RETRY_S = 0.1  # between two attempts
POLL_S = 0.02  # between two looks for the welcome


class EngineReturn:
    """Look for the engine that takes the place of a dead one. Call `step` until it returns lanes.

    The new lanes have the low 32 bits of the old incarnation, so the client's keys stay valid.
    """

    def __init__(
        self,
        endpoint: str | os.PathLike[str],
        name: str,
        incarnation: int,
        patience_s: float,
        why: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to look for at most `patience_s`; `why` says what happened to the old engine."""
        self._endpoint = endpoint
        self._name = name
        self._incarnation = incarnation
        self._patience_s = patience_s
        self._why = why
        self._clock = clock
        self._ends = clock() + patience_s
        self._retry_at = 0.0
        self._opening: Opening | None = None

    def step(self) -> Lanes | None:
        """Return the lanes to the new engine, None while it is not there.

        Raises LaneLost at the deadline.
        """
        now = self._clock()
        if now >= self._ends:
            self.close()
            raise LaneLost(f"{self._why}; no engine was there within {self._patience_s:g} s")
        try:
            if self._opening is None:
                if now < self._retry_at:
                    return None
                self._retry_at = now + RETRY_S
                instance = Instance.attach(self._endpoint)
                topology = Topology.from_json_dict(instance.info["topology"])
                self._opening = Opening(instance, topology, self._name, self._incarnation)
            return self._opening.lanes()
        except (TokenpipeError, OSError):  # it is not there yet, or it died again
            self._retry_at = now + RETRY_S
            self.close()
            return None

    @property
    def next_s(self) -> float:
        """The seconds until the next `step` is due."""
        now = self._clock()
        due = self._retry_at - now if self._opening is None else POLL_S
        return max(0.0, min(due, self._ends - now))

    def close(self) -> None:
        """Stop the present attempt."""
        opening, self._opening = self._opening, None
        if opening is not None:
            with suppress(OSError):
                opening.close()
