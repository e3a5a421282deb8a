"""Ask processors for their counters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from tokenpipe.wire import Counters, Snapshot

from .links import ProcessorLink


class Counts:
    """One request for counters at a time. Answers to an earlier request are dropped."""

    def __init__(self, links: Sequence[ProcessorLink]) -> None:
        """Use `links` as they are at each request: a dead processor's link is replaced."""
        self._links = links
        self._ids = count(1)
        self.missing: dict[int, int] = {}  # request id -> processor
        self._heard: dict[int, dict[str, int]] = {}

    def ask(self) -> None:
        """Ask each processor that is ready."""
        self._heard = {}
        self.missing = {next(self._ids): link.index for link in self._links if link.ready}
        for request, processor in self.missing.items():
            self._links[processor].dispatch([Snapshot(request)])

    def hear(self, answer: Counters) -> None:
        """Take the answer of a processor."""
        processor = self.missing.pop(answer.id, None)
        if processor is not None:
            self._heard[processor] = dict(answer.values)

    def take(self) -> dict[str, dict[str, int]]:
        """Return the answers that have come. Later answers are dropped."""
        self.missing = {}
        return {f"processor {index}": self._heard[index] for index in sorted(self._heard)}
