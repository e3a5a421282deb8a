"""The requests of a run: when each one arrives and how long it is."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from tokenpipe.errors import ConfigError

from .azure_lengths import CREDIT, LENGTHS


class Arrival(NamedTuple):
    """One request: its time in seconds after the first one, and its lengths in tokens."""

    at_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival. `credit` names the source, `skipped` counts empty requests."""

    name: str
    credit: str
    arrivals: tuple[Arrival, ...]
    skipped: int = 0

    @property
    def output_tokens(self) -> int:
        """The number of output tokens of all requests."""
        return sum(arrival.output_tokens for arrival in self.arrivals)

    def first(self, requests: int) -> Trace:
        """Return the first `requests` requests of the trace."""
        return Trace(self.name, self.credit, self.arrivals[:requests], self.skipped)

    def faster(self, speed_up: float) -> Trace:
        """Return the trace with all times divided by `speed_up`; with inf, all arrive at once.

        Raises ConfigError if `speed_up` is not above 0.
        """
        if not speed_up > 0:
            raise ConfigError(f"speed-up must be above 0, not {speed_up}")
        arrivals = tuple(a._replace(at_s=a.at_s / speed_up) for a in self.arrivals)
        return Trace(self.name, self.credit, arrivals, self.skipped)


def sample(requests: int, seed: int = 0, rate: float | None = None) -> Trace:
    """Return requests of real lengths. They arrive at random, `rate` a second; None: all at once.

    The same `seed` gives the same requests.
    """
    random_numbers = random.Random(seed)
    at_s = 0.0
    arrivals = []
    for _ in range(requests):
        prompt, output = random_numbers.choice(LENGTHS)
        arrivals.append(Arrival(at_s, prompt, output))
        at_s += random_numbers.expovariate(rate) if rate else 0.0
    return Trace("built-in sample", CREDIT, tuple(arrivals))
