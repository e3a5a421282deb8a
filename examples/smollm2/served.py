"""SmolLM2 as a model for tokenpipe's own host and API server.

`python -m examples.smollm2.served smollm2.yaml` writes a topology with its tokenizer, and
`python -m tokenpipe serve smollm2.yaml --engine examples.smollm2.served:make` runs it behind HTTP.
The scheduler is tokenpipe's, and `Served` is all that a model needs to be served.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenpipe import RowAnnex, StepBind, runner_for
from tokenpipe.worker import RankPlace, StepRows

from .model import SmolLM2
from .tokenizer import Chat
from .weights import Weights, unpack


class Served:
    """A runner whose steps are returned instead of published: the host's worker publishes."""

    def __init__(self, place: RankPlace, room: int = 1024, weights: str | None = None) -> None:
        folder = Path(weights) if weights else unpack()
        model = SmolLM2(Weights(folder), place.topology.slots_per_rank, room)
        self._runner = runner_for(place.topology.platform)(model, self, depth=0)
        self._runner.warm_up(rows=2, tokens=8)
        self._rows: StepRows | None = None

    def admit(self, binding: StepBind) -> None:
        """Take a request in."""
        self._runner.change([binding])

    def step(self) -> StepRows | None:
        """Run one step."""
        self._rows = None
        self._runner.step()
        return self._rows

    def free(self, handle: int) -> None:
        """Let a request go."""
        self._runner.change(frees=[handle])

    # --- what the runner takes for its publisher ---

    def publish(
        self,
        step: int,
        handles: Any,
        tokens: Any,
        counts: Any = None,
        status: Any = None,
        logprobs: Any = None,
        drained: Any = None,
        *,
        annexes: Mapping[int, RowAnnex] | None = None,
    ) -> None:
        """Keep the step; drained rows are the host's."""
        if len(handles):
            self._rows = StepRows(handles, tokens, counts, logprobs, status, annexes)

    def poll(self) -> None:
        """Nothing waits here."""

    def fail(self, error: str | BaseException) -> None:
        """Nothing: the runner raises, and the host's worker ends with it."""


make = Served


def topology() -> dict[str, Any]:
    """Return what a topology has to say of the model; unpacks it where that was not done yet."""
    folder = unpack()
    shape = Weights(folder).settings
    return {
        "vocab_size": shape["vocabulary"],
        "eos_token_ids": [shape["eos"]],
        "tokenizer": str(Chat().save(folder)),
        "slots_per_rank": 8,
        "timeouts": {"startup_s": 120},
        "api": {"model": "SmolLM2-135M-Instruct"},
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(topology(), indent=2) + "\n")  # JSON is YAML
