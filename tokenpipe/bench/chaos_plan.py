"""Plan the faults of a chaos run: which kind, when, and for how long. Pure: a seed decides all."""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from tokenpipe.errors import ConfigError


class FaultKind(str, Enum):
    """What is done to the processes and files of a run."""

    KILL_WORKER = "kill-worker"
    KILL_ALL_WORKERS = "kill-all-workers"
    KILL_PROCESSOR = "kill-processor"
    STOP_WORKER = "stop-worker"
    STOP_PROCESSOR = "stop-processor"
    STOP_CLIENT = "stop-client"
    SLOW_WORKER = "slow-worker"
    SLOW_PROCESSOR = "slow-processor"
    REMOVE_LOCKS = "remove-locks"
    REMOVE_SOCKETS = "remove-sockets"
    REMOVE_INSTANCE_FILE = "remove-instance-file"
    REMOVE_DIRECTORY = "remove-directory"
    NO_DESCRIPTORS = "no-descriptors"
    NO_DISK = "no-disk"
    BAD_FRAMES = "bad-frames"
    MORE_PARTS = "more-parts"


LASTING_S = {
    FaultKind.STOP_WORKER: (0.1, 1.5),
    FaultKind.STOP_PROCESSOR: (0.1, 1.5),
    FaultKind.STOP_CLIENT: (0.1, 3.0),
    FaultKind.SLOW_WORKER: (0.5, 3.0),
    FaultKind.SLOW_PROCESSOR: (0.5, 3.0),
    FaultKind.NO_DESCRIPTORS: (0.5, 2.0),
    FaultKind.NO_DISK: (0.5, 2.0),
}
"""Shortest and longest time of the faults that last, in seconds. The others happen at once."""

BEGIN_S = 2.0  # before the first fault
QUIET_S = 5.0  # after the last fault, before the last request


class PlannedFault(NamedTuple):
    """One fault: its time and its length in seconds, and a seed for its own choices."""

    at_s: float
    kind: FaultKind
    lasts_s: float
    seed: int


def parse_spec(text: str) -> dict[FaultKind, float]:
    """Return the weight of each kind of fault.

    `text` is "all", or names with optional weights: "kill-worker=3,stop-client". Raises ConfigError
    for any other text; the message names the part that is wrong.
    """
    if text == "all":
        return dict.fromkeys(FaultKind, 1.0)
    weights: dict[FaultKind, float] = {}
    for part in text.split(","):
        name, equals, weight = part.strip().partition("=")
        try:
            kind = FaultKind(name)
        except ValueError:
            known = ", ".join(k.value for k in FaultKind)
            raise ConfigError(f"chaos: {name!r} is no kind of fault; all, or {known}") from None
        weights[kind] = _weight(part, weight) if equals else 1.0
    return weights


def _weight(part: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 0.0 < weight < 1e6:
        raise ConfigError(f"chaos: the weight in {part.strip()!r} must be a number above 0")
    return weight


def plan_faults(
    weights: Mapping[FaultKind, float], *, seconds: float, every_s: float, seed: int
) -> list[PlannedFault]:
    """Return the faults of a run of `seconds`, one each `every_s` on average, in order of time.

    The same arguments give the same faults. Each kind comes once before kinds are drawn at random,
    so that a run of enough faults has all of them.
    """
    random_numbers = random.Random(seed)
    kinds = list(weights)
    first = random_numbers.sample(kinds, len(kinds))
    faults: list[PlannedFault] = []
    at_s = BEGIN_S
    while at_s < seconds - QUIET_S:
        index = len(faults)
        kind = (
            first[index]
            if index < len(first)
            else random_numbers.choices(kinds, [weights[k] for k in kinds])[0]
        )
        lasts_s = random_numbers.uniform(*LASTING_S.get(kind, (0.0, 0.0)))
        faults.append(PlannedFault(at_s, kind, lasts_s, random_numbers.getrandbits(32)))
        at_s += every_s * random_numbers.uniform(0.5, 1.5)
    return faults
