"""Say what one bench run is: a frozen value made from the command line."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tokenpipe.errors import ConfigError
from tokenpipe.topology import Topology

from .oracle import VOCAB_SIZE

# What a run is made of where neither an option nor a file says it.
BATCH = 64
DP = 2
TP = 2
CLIENTS = 2


@dataclass(frozen=True)  # no slots: its class attributes are the command line's defaults
class Options:
    """Options of `python -m tokenpipe.bench`; None is "as the topology or the mode says"."""

    batch: int | None = None
    steps: int | None = None  # requests of so many steps each, instead of a trace
    requests: int = 2000  # of the built-in sample
    arrivals: float | None = None  # of them a second; None is all at once
    rate: float | None = None  # steps/s of a rank; None is as fast as it goes
    pin: bool = False
    tokens_per_row: int = 1
    logprobs: int | None = None
    text: bool = False
    dp: int | None = None
    tp: int | None = None
    processors: int | None = None
    clients: int | None = None
    consume: str = "columns"
    preempt_rate: float = 0.05
    abort_rate: float = 0.02
    seed: int = 0
    trace: Path | None = None
    speed_up: float = 1.0
    discard: bool = False
    topology: Path | None = None

    def __post_init__(self) -> None:
        if self.consume not in ("columns", "streams"):
            raise ConfigError(f"consume must be columns or streams, not {self.consume!r}")
        if self.discard and self.steps is None:
            raise ConfigError("discard needs steps: nothing else would end the run")

    def make_topology(self) -> Topology:
        """Return the topology: the file's, or the bench's own, and the options given on top."""
        if self.topology is None:
            base = Topology(
                data_parallel_size=DP,
                tensor_parallel_size=TP,
                slots_per_rank=BATCH,
                vocab_size=VOCAB_SIZE,
            )
        else:
            base = Topology.load(self.topology)
        given: dict[str, Any] = {
            "data_parallel_size": self.dp,
            "tensor_parallel_size": self.tp,
            "slots_per_rank": self.batch,
            "clients": self.clients and max(self.clients, base.clients),
            "processors": self.processors and {"count": self.processors},
        }
        return base.replaced(**{key: value for key, value in given.items() if value is not None})

    def client_count(self) -> int:
        """Return how many clients to run: as told here, else in the file, else CLIENTS."""
        if self.clients is not None:
            return self.clients
        if self.topology is None:
            return CLIENTS
        file = Topology.load(self.topology)
        return file.clients if "clients" in file.model_fields_set else CLIENTS

    def as_dict(self, topology: Topology) -> dict[str, Any]:
        """Return plain values for the report, with what the topology decided filled in."""
        full = replace(
            self,
            batch=topology.slots_per_rank,
            dp=topology.data_parallel_size,
            tp=topology.tensor_parallel_size,
            processors=topology.processor_count,
            clients=self.client_count(),
        )
        return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(full).items()}
