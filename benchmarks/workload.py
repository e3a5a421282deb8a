"""Say what is carried: a batch of requests of which each gets one token a step, until time is up.

Every token is known beforehand (`tokenpipe.bench.oracle`); the last one of each request is `EOS`,
so a request ends the way requests end: because its processor saw a stop token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpipe.bench.oracle import VOCAB_SIZE, mix, seeds

EOS = VOCAB_SIZE  # beside all tokens the oracle knows
MAX_TOKENS = 1 << 20
STEPS_AT_A_TIME = 64


@dataclass(frozen=True, slots=True)
class Workload:
    """One run: who consumes how, and for how long it is fed."""

    batch: int = 256
    clients: int = 1
    seconds: float = 2.0
    rate: float | None = None  # steps/s; None is flood
    at_once: int = 1  # steps that a sleep of the pace leads to
    churn: bool = False  # each step one request, by turns, gets no token, as in a chunked prefill
    streams: bool = False  # every request has its own async consumer, else whole messages are read
    check_later: bool = False  # whole messages are kept and checked once all are there

    def client_of(self, slot: int) -> int:
        """Return the client whose request sits in `slot`."""
        return slot % self.clients

    def keys_of(self, client: int) -> list[int]:
        """Return the request keys of a client, made as tokenpipe's clients make them."""
        slots = range(client, self.batch, self.clients)
        return [key(client, index) for index in range(len(slots))]


def key(client: int, index: int) -> int:
    """Return the u64 key of a client's request: its own high half, then a counter."""
    return (0x70_6B_00_01 + client) << 32 | index


class Turns:
    """Make the rows of each step: all of them, or with churn all but one, by turns."""

    def __init__(self, keys: list[int], churn: bool) -> None:
        self._tokens = Tokens(keys)
        every = np.arange(len(keys), dtype=np.int64)
        self._all = every
        self._some = [np.delete(every, out) for out in every] if churn else []

    def step(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return places in the batch i64[n] and their tokens i32[n]."""
        if not self._some:
            return self._all, self._tokens.step()
        rows = self._some[number % len(self._some)]
        return rows, self._tokens.step_of(rows)


class Tokens:
    """Make the tokens of one batch, step by step: i32[batch], valid until the next call.

    They are made for many steps at a time: what making them costs is no path's.
    """

    def __init__(self, keys: list[int]) -> None:
        self._walk, self._stride = seeds(np.array(keys, dtype=np.uint64))
        self._ahead = np.arange(STEPS_AT_A_TIME, dtype=np.uint32)[:, None] * self._stride
        self._scratch = np.empty_like(self._ahead)
        self._made: list[NDArray[np.int32]] = []

    def step(self) -> NDArray[np.int32]:
        """Return the next token of every request."""
        if not self._made:
            walks = self._walk + self._ahead
            self._walk += np.uint32(STEPS_AT_A_TIME) * self._stride
            self._made = list(mix(walks, self._scratch)[::-1])
        return self._made.pop()

    def step_of(self, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the next token of some requests, by their places; not to be mixed with `step`."""
        out = self._walk[rows]
        self._walk[rows] += self._stride[rows]
        return mix(out, self._scratch[0, : len(rows)])
