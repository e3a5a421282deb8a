"""Ask processors what they have counted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from tokenpipe.wire import Counters, Snapshot

from .links import ProcessorLink


class Counts:
    """One question at a time; an answer to an earlier one is dropped."""

    def __init__(self, links: Sequence[ProcessorLink]) -> None:
        """Look at `links` when asked: they are replaced where a processor dies."""
        self._links = links
        self._ids = count(1)
        self.missing: dict[int, int] = {}  # question -> processor
        self._heard: dict[int, dict[str, int]] = {}

    def ask(self) -> None:
        """Ask every processor that is there."""
        self._heard = {}
        self.missing = {next(self._ids): link.index for link in self._links if link.ready}
        for question, processor in self.missing.items():
            self._links[processor].dispatch([Snapshot(question)])

    def hear(self, answer: Counters) -> None:
        """Take an answer."""
        processor = self.missing.pop(answer.id, None)
        if processor is not None:
            self._heard[processor] = dict(answer.values)

    def take(self) -> dict[str, dict[str, int]]:
        """Return what was heard; who has not answered is not waited for any more."""
        self.missing = {}
        return {f"processor {index}": self._heard[index] for index in sorted(self._heard)}
