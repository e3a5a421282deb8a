"""The load of one run: a batch of requests. Each one gets a token a step until the time is over.

Each token is known before (`tokenpipe.bench.oracle`). The last token of each request is `EOS`, so
its processor ends it, as it ends any request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpipe.bench.oracle import VOCAB_SIZE, mix, seeds

EOS = VOCAB_SIZE  # the oracle makes no such token
MAX_TOKENS = 1 << 20
STEPS_AT_A_TIME = 64


@dataclass(frozen=True, slots=True)
class Workload:
    """What one run publishes, and how its clients read."""

    batch: int = 256
    clients: int = 1
    seconds: float = 2.0
    rate: float | None = None  # steps/s; None: no limit
    at_once: int = 1  # steps after each sleep, if there is a rate
    churn: bool = False  # in each step another request gets no token, as in a chunked prefill
    streams: bool = False  # each request has an async consumer; else whole messages are read
    check_later: bool = False  # whole messages are checked when all have come

    def client_of(self, slot: int) -> int:
        """Return the client of the request in `slot`."""
        return slot % self.clients

    def keys_of(self, client: int) -> list[int]:
        """Return the request keys of a client, made as tokenpipe's clients make them."""
        slots = range(client, self.batch, self.clients)
        return [key(client, index) for index in range(len(slots))]


def key(client: int, index: int) -> int:
    """Return the u64 key of a request: the client's number in the high half, then a counter."""
    return (0x70_6B_00_01 + client) << 32 | index


class StepRows:
    """Make the rows of each step: those of all requests, or with `churn` of all but one."""

    def __init__(self, keys: list[int], churn: bool) -> None:
        self._tokens = Tokens(keys)
        every = np.arange(len(keys), dtype=np.int64)
        self._all = every
        self._some = [np.delete(every, out) for out in every] if churn else []

    def step(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return positions in the batch i64[n] and their tokens i32[n]."""
        if not self._some:
            return self._all, self._tokens.step()
        rows = self._some[number % len(self._some)]
        return rows, self._tokens.step_of(rows)


class Tokens:
    """Make the tokens of one batch, a step at a time: i32[batch], valid until the next call.

    They are made for many steps at once, because no path is charged for making them.
    """

    def __init__(self, keys: list[int]) -> None:
        self._walk, self._stride = seeds(np.array(keys, dtype=np.uint64))
        self._ahead = np.arange(STEPS_AT_A_TIME, dtype=np.uint32)[:, None] * self._stride
        self._scratch = np.empty_like(self._ahead)
        self._made: list[NDArray[np.int32]] = []

    def step(self) -> NDArray[np.int32]:
        """Return the next token of each request."""
        if not self._made:
            walks = self._walk + self._ahead
            self._walk += np.uint32(STEPS_AT_A_TIME) * self._stride
            self._made = list(mix(walks, self._scratch)[::-1])
        return self._made.pop()

    def step_of(self, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the next token of the requests at these positions. Do not mix with `step`."""
        out = self._walk[rows]
        self._walk[rows] += self._stride[rows]
        return mix(out, self._scratch[0, : len(rows)])
