"""Count tokens in each process, and tell the caller of a run how far it is."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

REPORT_S = 0.1


class Progress(NamedTuple):
    """How far a run is. Tokens of cancelled requests are in `of_tokens` and never arrive."""

    requests: int
    of_requests: int
    tokens: int
    of_tokens: int


class TokenCounter:
    """A count in a memory-mapped file, which another process may read at any time."""

    def __init__(self, path: Path | None = None) -> None:
        """Begin at 0. Without a path, the count is in the memory of this process."""
        if path is None:
            self._count = memoryview(bytearray(8)).cast("Q")
            return
        with open(path, "w+b") as file:
            file.truncate(8)
            self._count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")

    def add(self, tokens: int) -> None:
        """Add a number of tokens."""
        self._count[0] += tokens


def read_token_count(path: Path) -> int:
    """Return the count of another process, or 0 if it has not begun."""
    try:
        return int.from_bytes(path.read_bytes(), "little")
    except FileNotFoundError:
        return 0


class ProgressReporter:
    """Call `progress` at most ten times a second, however often `update` is called."""

    def __init__(
        self,
        progress: Callable[[Progress], None],
        token_counts: Sequence[Path],
        *,
        requests: int,
        tokens: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`requests` and `tokens` are those of the whole run; `token_counts` are files."""
        self._progress = progress
        self._token_counts = token_counts
        self._requests = requests
        self._tokens = tokens
        self._clock = clock
        self._due = 0.0

    def update(self, requests: int) -> None:
        """Report if it is time; `requests` is how many have ended so far."""
        now = self._clock()
        if now >= self._due:
            self._due = now + REPORT_S
            tokens = sum(map(read_token_count, self._token_counts))
            self._progress(Progress(requests, self._requests, tokens, self._tokens))
