"""Give each request an async consumer, and note when the last consumer had a step's token.

All rivals share this fan-out, so they differ in their path and not in their asyncio code. A
consumer is woken by a Future only if it waits, and it takes all items that are there.
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
    """Note for each step when a consumer last took a token of it, and how large the items were."""

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
        """Return i64[steps]: when the last consumer had each step, 0 if none had it."""
        return np.frombuffer(self._last_ns, dtype=np.int64)

    def check(self, checker: Checker) -> None:
        """Check all tokens that came. Each request ends with EOS."""
        for key, ids in self.tokens.items():
            check_request(checker, key, 0, ids, True)


class FanoutStream:
    """The items that one consumer has not taken yet."""

    __slots__ = ("_items", "_waiter")

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: Item) -> None:
        """Add an item; wake the consumer if it waits."""
        self._items.append(item)
        if self._waiter is not None:
            self._waiter.set_result(None)
            self._waiter = None

    async def get(self) -> list[Item]:
        """Return all items that are there; wait for one if there is none."""
        if not self._items:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        items, self._items = self._items, []
        return items


async def consume(key: int, stream: FanoutStream, recorder: Recorder) -> None:
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
    """Check tokens of one request. Where it ended, the last of them must be EOS."""
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
    """Check a message of columns; return how many requests end in it."""
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
