"""Say what one bench run is: a frozen value made from the command line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenpipe.topology import Topology

from .oracle import VOCAB_SIZE


@dataclass(frozen=True)  # no slots: its class attributes are the command line's defaults
class Options:
    """Options of `python -m tokenpipe.bench`; None is "as the topology or the mode says"."""

    batch: int = 64
    steps: int | None = None  # requests of so many steps each, instead of a trace
    requests: int = 2000  # of the built-in sample
    rate: float | None = None  # steps/s of a rank; None is as fast as it goes
    pin: bool = False
    tokens_per_row: int = 1
    logprobs: int | None = None
    dp: int = 2
    tp: int = 2
    processors: int | None = None
    clients: int = 2
    consume: str = "columns"
    preempt_rate: float = 0.05
    abort_rate: float = 0.02
    seed: int = 0
    trace: Path | None = None
    speed_up: float = 1.0
    discard: bool = False
    topology: Path | None = None

    def make_topology(self) -> Topology:
        """Return the topology: the file's where one is given, the options' on top."""
        base = Topology() if self.topology is None else Topology.load(self.topology)
        changes: dict[str, Any] = {
            "data_parallel_size": self.dp,
            "tensor_parallel_size": self.tp,
            "slots_per_rank": self.batch,
            "vocab_size": VOCAB_SIZE,
            "clients": max(self.clients, base.clients),
        }
        if self.processors is not None:
            changes["processors"] = {"count": self.processors}
        return base.replaced(**changes)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for the report."""
        values = asdict(self)
        return {k: str(v) if isinstance(v, Path) else v for k, v in values.items()}
