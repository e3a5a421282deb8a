"""Decide whether to wait for a processor that died. Its next process goes on where it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from typing_extensions import Self

from tokenpipe.instance import Instance
from tokenpipe.topology import Topology


class Comeback:
    """Whether a processor lives, or will soon: its engine lives and starts it again."""

    def __init__(
        self,
        alive: Callable[[], bool],
        engine: Callable[[], bool],
        patience_s: float,
        clock: Callable[[], float],
    ) -> None:
        """`alive` and `engine` return whether the processor and the engine live.

        `patience_s` is the longest wait for a next process, 0 if none is started.
        """
        self._alive = alive
        self._engine = engine
        self._patience_s = patience_s
        self._clock = clock
        self._seen = float("-inf")  # the last time at which the processor lived

    @classmethod
    def of(
        cls, instance: Instance, topology: Topology, processor: str, clock: Callable[[], float]
    ) -> Self:
        """Return the one of a processor, by its rank."""
        restarts = topology.policies.processor == "restart"
        return cls(
            partial(instance.alive, "processor", processor),
            partial(instance.alive, "engine", "0"),
            topology.timeouts.startup_s if restarts else 0.0,
            clock,
        )

    def __call__(self) -> bool:
        """Return it."""
        now = self._clock()
        if self._alive():
            self._seen = now
            return True
        return now - self._seen < self._patience_s and self._engine()
