"""Give each request a consumer of its own, and note when the last one had its token.

Rivals share this fan-out, so that they differ by their path and not by their asyncio: a consumer is
woken by a Future only when it is parked and takes all that has piled up.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpipe.bench.checker import Checker

from .workload import EOS

Item = tuple[int, list[int], bool]  # offset, token ids, finished
# keys, offsets, counts (None: all 1), tokens, rows that ended
ColumnsMessage = tuple[
    NDArray[np.uint64], NDArray[Any], NDArray[Any] | None, NDArray[np.int32], Iterable[int]
]


class Recorder:
    """Note for each step when a consumer last took a token of it, and how large items were."""

    def __init__(self, steps: int) -> None:
        self._last_ns = array("q", bytes(8 * steps))
        self.items: Counter[int] = Counter()
        self.tokens: dict[int, list[int]] = {}
        self.misplaced = 0
        self.errors: set[str] = set()

    def took(self, before: int, after: int) -> None:
        """Note that a consumer went from `before` to `after` tokens. Step n makes token n."""
        now = time.monotonic_ns()
        last = self._last_ns
        for step in range(before, min(after, len(last))):
            last[step] = now
        self.items[after - before] += 1

    def last_ns(self) -> NDArray[np.int64]:
        """Return when the last consumer had step n, 0 where none did."""
        return np.frombuffer(self._last_ns, dtype=np.int64)

    def check(self, checker: Checker) -> None:
        """Hand everything that came to the checker; each request ends with EOS."""
        for key, ids in self.tokens.items():
            check_request(checker, key, 0, ids, True)


class Stream:
    """What one consumer has not yet taken."""

    __slots__ = ("_items", "_parked")

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._parked: asyncio.Future[None] | None = None

    def put(self, item: Item) -> None:
        """Add an item; wake the consumer where it waits."""
        self._items.append(item)
        if self._parked is not None:
            self._parked.set_result(None)
            self._parked = None

    async def get(self) -> list[Item]:
        """Return all that has piled up, at least one item."""
        if not self._items:
            self._parked = asyncio.get_running_loop().create_future()
            await self._parked
        items, self._items = self._items, []
        return items


async def consume(key: int, stream: Stream, recorder: Recorder) -> None:
    """Take the tokens of one request until it ends."""
    ids = recorder.tokens.setdefault(key, [])
    over = False
    while not over:
        before = len(ids)
        for offset, new, last in await stream.get():
            if offset != len(ids):
                recorder.misplaced += abs(offset - len(ids))
            ids += new
            over = last
        recorder.took(before, len(ids))


def check_request(
    checker: Checker, key: int, offset: int, ids: list[int] | NDArray[np.int32], ended: bool
) -> None:
    """Check some tokens of one request; the last one of all is EOS and nothing else."""
    if not ended:
        checker.stream(key, offset, list(ids))
        return
    checker.stream(key, offset, list(ids[:-1]))
    checker.finish(key, offset + len(ids) - 1 if len(ids) and ids[-1] == EOS else -1)


def check_columns(
    checker: Checker,
    keys: NDArray[np.uint64],
    offsets: NDArray[Any],
    counts: NDArray[Any] | None,
    tokens: NDArray[np.int32],
    ended: Iterable[int],
) -> int:
    """Check a message that came as columns; return how many requests ended in it."""
    over = set(ended)
    if not over:
        checker.rows(keys, offsets, counts, tokens)
        return 0
    at = 0
    for row, (key, offset) in enumerate(zip(keys.tolist(), offsets.tolist(), strict=True)):
        count = 1 if counts is None else int(counts[row])
        check_request(checker, key, offset, tokens[at : at + count], row in over)
        at += count
    return len(over)
