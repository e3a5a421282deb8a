"""One rank of SmolLM2: the library's own model runner over the model.

`python -m tokenpipe serve smollm2.yaml --engine examples.smollm2.executor:make` runs it behind
HTTP; `.topology` writes the file.
"""

from __future__ import annotations

from pathlib import Path

from tokenpipe import ModelRunner, runner_for
from tokenpipe.worker import RankPlace

from .forced import Forced
from .model import SmolLM2
from .weights import Weights, unpack


def make(
    place: RankPlace, room: int = 1024, weights: str | None = None, forced: str | None = None
) -> ModelRunner:
    """Return the runner of a rank, warmed up.

    Args:
        place: where in the topology it runs.
        room: tokens of a slot.
        weights: folder of the unpacked weights; None unpacks them into the user's cache.
        forced: file with plain ids that are fed back whatever is sampled, see `Forced`.
    """
    folder = Path(weights) if weights else unpack()
    slots = place.topology.slots_per_rank
    if forced is None:
        model = SmolLM2(Weights(folder), slots, room)
    else:
        model = Forced(Weights(folder), slots, room, Path(forced))
    runner = runner_for(place.topology.platform)(model)
    runner.warm_up(rows=2, tokens=8)
    return runner
