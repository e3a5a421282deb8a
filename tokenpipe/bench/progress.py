"""Count tokens where they come out, so that whoever runs the bench sees how far it is."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

LOOK_S = 0.1


class Progress(NamedTuple):
    """How far a run is. Tokens of requests that are given up never come."""

    requests: int
    of_requests: int
    tokens: int
    of_tokens: int


class TokenCounter:
    """A count in a page of a file, which costs its process next to nothing."""

    def __init__(self, path: Path | None = None) -> None:
        """Begin at 0; None counts for nobody."""
        if path is None:
            self._count = memoryview(bytearray(8)).cast("Q")
            return
        with open(path, "w+b") as file:
            file.truncate(8)
            self._count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")

    def add(self, tokens: int) -> None:
        """Count on."""
        self._count[0] += tokens


def read_token_count(path: Path) -> int:
    """Return the count of another process, 0 before it began."""
    try:
        return int.from_bytes(path.read_bytes(), "little")
    except FileNotFoundError:
        return 0


class ProgressReporter:
    """Tell `progress` ten times a second how far a run is, however often it is asked to."""

    def __init__(
        self,
        progress: Callable[[Progress], None],
        requests: int,
        tokens: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`requests` and `tokens` are those of the whole run."""
        self._progress = progress
        self._requests = requests
        self._tokens = tokens
        self._clock = clock
        self._due = 0.0

    def look(self, requests: int, tallies: Iterable[Path]) -> None:
        """Add the tallies up and tell, where it is time."""
        now = self._clock()
        if now >= self._due:
            self._due = now + LOOK_S
            tokens = sum(map(read_token_count, tallies))
            self._progress(Progress(requests, self._requests, tokens, self._tokens))
