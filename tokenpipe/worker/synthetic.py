"""An executor without a model: each token follows from prompt, seed and position.

It is there to try out a topology, for tests, and as an example of the interface.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from tokenpipe.errors import ConfigError
from tokenpipe.wire import StepBind

from .arrays import StepLogprobs
from .executor import RankPlace, StepRows

VOCAB_SIZE = 32_000  # if the topology has none
RATE = 1000.0  # a chat's default of 1,024 tokens takes a second
SYNTHETIC = "tokenpipe.worker:SyntheticEngine"


class SyntheticEngine:
    """Give each running request `tokens_per_row` tokens a step, `rate` steps a second.

    With a seed, a prompt always gets the same tokens. Without a seed, each request gets others. The
    topology's EOS ids never come. With `rate` 0, steps follow one another without a pause.
    """

    def __init__(
        self,
        place: RankPlace,
        *,
        rate: float = RATE,
        tokens_per_row: int = 1,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if rate < 0 or tokens_per_row < 1:
            raise ConfigError("synthetic engine: rate must be >= 0, tokens_per_row >= 1")
        vocab = place.topology.vocab_size or VOCAB_SIZE
        allowed = np.setdiff1d(np.arange(min(vocab, 1 << 20)), place.topology.eos_token_ids)
        if not len(allowed):
            raise ConfigError("synthetic engine: every token of the vocabulary is an EOS id")
        self._allowed: NDArray[np.int32] = allowed.astype(np.int32)
        self._k = tokens_per_row
        self._period_s = 1 / rate if rate else 0.0
        self._clock, self._sleep = clock, sleep
        self._due = clock()
        self._rows: dict[int, tuple[int, int, int | None]] = {}  # handle: seed, offset, logprobs
        self._changed = True

    def admit(self, binding: StepBind) -> None:
        """Take a request in. It continues after the output tokens that it has."""
        params = binding.params
        which = binding.key if params.seed is None else params.seed & 0xFFFFFFFFFFFFFFFF
        raw = np.asarray(binding.prompt_token_ids, np.int32).tobytes()
        digest = blake2b(raw, digest_size=8, key=which.to_bytes(8, "little")).digest()
        seed = int.from_bytes(digest, "little")
        self._settle()
        self._rows[binding.handle] = (seed, binding.output_tokens, params.logprobs)

    def free(self, handle: int) -> None:
        """Forget a request."""
        self._settle()
        self._rows.pop(handle, None)

    def step(self) -> StepRows | None:
        """Wait until a step is due, and return the next tokens of all requests."""
        self._wait()
        if not self._rows:
            return None
        if self._changed:
            self._spread()
        walk = np.add(self._seeds, self._offsets, dtype=np.uint64)
        tokens = self._allowed[_mix(walk) % len(self._allowed)]
        self._offsets += np.uint64(self._k)
        self._steps += 1
        return StepRows(self._handles, tokens, self._counts, self._logprobs(tokens))

    def _wait(self) -> None:
        if self._period_s:
            now = self._clock()
            # A pause in which no step was due does not make the next steps faster.
            self._due = max(self._due + self._period_s, now - self._period_s)
            if self._due > now:
                self._sleep(self._due - now)  # in place of a forward pass

    def _settle(self) -> None:
        """Write the offsets into `_rows` before the batch changes."""
        if not self._changed:
            for handle, (seed, offset, logprobs) in self._rows.items():
                self._rows[handle] = (seed, offset + self._steps * self._k, logprobs)
        self._changed = True

    def _spread(self) -> None:
        self._handles = np.fromiter(self._rows, np.int64, len(self._rows))
        seeds, offsets, ks = zip(*self._rows.values(), strict=True)
        self._seeds: NDArray[np.uint64] = np.repeat(np.array(seeds, np.uint64), self._k)
        spread = np.array(offsets, np.int64)[:, None] + np.arange(self._k)
        self._offsets: NDArray[np.uint64] = spread.ravel().astype(np.uint64)
        self._counts = None if self._k == 1 else np.full(len(ks), self._k, np.int32)
        self._ks = None
        if any(k is not None for k in ks):
            self._ks = np.array([-1 if k is None else k for k in ks], np.int32)
        self._steps = 0
        self._changed = False

    def _logprobs(self, tokens: NDArray[np.int32]) -> StepLogprobs | None:
        if self._ks is None:
            return None
        entries = np.repeat(self._ks, self._k) + 1  # of each token
        owners = np.repeat(np.arange(len(tokens)), entries)
        nth = np.arange(len(owners)) - np.repeat(np.cumsum(entries) - entries, entries)
        at = np.searchsorted(self._allowed, tokens[owners])
        ids = self._allowed[(at + nth) % len(self._allowed)]
        values = -0.5 - 0.25 * nth.astype(np.float32)
        ranks = np.ones(int(np.count_nonzero(entries)), np.int32)
        return StepLogprobs(ids, values.astype(np.float32), ranks, self._ks)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return a pseudo-random number for each position, by splitmix64."""
    x = x * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return np.asarray(x >> np.uint64(33), np.int64)
