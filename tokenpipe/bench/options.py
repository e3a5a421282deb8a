"""The options of one bench run, as a frozen value."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tokenpipe.errors import ConfigError
from tokenpipe.topology import Topology

from .chaos_plan import PlannedFault, parse_spec, plan_faults
from .oracle import VOCAB_SIZE

# The defaults of values that neither an option nor a topology file gives.
BATCH = 64
DP = 2
TP = 2
CLIENTS = 2
CHAOS_RATE = 50.0  # steps/s
CHAOS_ARRIVALS = 10.0  # requests a second
CHAOS_EVERY_S = 4.0  # between two faults, on average


@dataclass(frozen=True)  # without slots: the command line reads the defaults from the class
class Options:
    """Options of `python -m tokenpipe.bench`. None leaves a value to the topology or the mode.

    Raises ConfigError if options do not fit one another.
    """

    batch: int | None = None
    steps: int | None = None  # the length of each request in steps, instead of a trace
    requests: int = 2000  # drawn from the built-in sample
    arrivals: float | None = None  # requests a second; None: all at once
    rate: float | None = None  # steps/s of a rank; None: no limit
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
    chaos: str | None = None  # kinds of faults, see `chaos_plan.parse_spec`
    minutes: float = 1.0  # the length of a run with chaos

    def __post_init__(self) -> None:
        if self.consume not in ("columns", "streams"):
            raise ConfigError(f"consume must be columns or streams, not {self.consume!r}")
        if self.discard and self.steps is None:
            raise ConfigError("discard needs steps: nothing else would end the run")
        if self.chaos is not None:
            self._check_chaos(self.chaos)

    def _check_chaos(self, chaos: str) -> None:
        parse_spec(chaos)
        if self.trace is not None or self.steps is not None:
            raise ConfigError("chaos needs the built-in sample: no trace, no steps")
        if not 0.0 < self.minutes <= 1440.0:
            raise ConfigError(f"minutes must be above 0 and at most 1440, not {self.minutes}")

    def for_chaos(self) -> Options:
        """Return these options with the rates of a run with chaos, if none is given."""
        arrivals = self.arrivals or CHAOS_ARRIVALS
        requests = max(1, round(arrivals * self.minutes * 60))
        rate = self.rate or CHAOS_RATE
        return replace(self, arrivals=arrivals, requests=requests, rate=rate)

    def faults(self) -> list[PlannedFault]:
        """Return the faults of the run, in order of time; none without `chaos`."""
        if self.chaos is None:
            return []
        return plan_faults(
            parse_spec(self.chaos),
            seconds=self.minutes * 60,
            every_s=CHAOS_EVERY_S,
            seed=self.seed,
        )

    def make_topology(self) -> Topology:
        """Return the file's topology, or the bench's own, changed by the options that are given.

        Raises ConfigError if the file or the result is not valid.
        """
        if self.topology is None:
            base = Topology(
                data_parallel_size=DP,
                tensor_parallel_size=TP,
                slots_per_rank=BATCH,
                vocab_size=VOCAB_SIZE,
                # The bench kills workers, so a death says nothing about the requests.
                policies={"max_deaths": 1_000_000},
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
        """Return how many clients to run: the option, else the file's number, else CLIENTS."""
        if self.clients is not None:
            return self.clients
        if self.topology is None:
            return CLIENTS
        file = Topology.load(self.topology)
        return file.clients if "clients" in file.model_fields_set else CLIENTS

    def as_dict(self, topology: Topology) -> dict[str, Any]:
        """Return plain values for the report, with the values that `topology` decided."""
        full = replace(
            self,
            batch=topology.slots_per_rank,
            dp=topology.data_parallel_size,
            tp=topology.tensor_parallel_size,
            processors=topology.processor_count,
            clients=self.client_count(),
        )
        return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(full).items()}
