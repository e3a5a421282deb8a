"""Choose the requests of a run and share them out to the clients."""

from __future__ import annotations

import random

from tokenpipe.topology import Topology

from .client_results import NEVER, PlannedRequest
from .options import Options
from .trace_files import load
from .traces import Arrival, Trace, sample


def make_trace(options: Options, topology: Topology) -> Trace:
    """Return the requests of a run: a file's, one of `steps` steps for each slot, or a sample."""
    if options.trace is not None:
        return load(options.trace).faster(options.speed_up)
    if options.steps is not None:
        tokens = options.steps * options.tokens_per_row
        slots = topology.slots_per_rank * topology.data_parallel_size
        return Trace(f"{options.steps} steps", "", (Arrival(0.0, 0, tokens),) * slots)
    return sample(options.requests, options.seed, options.arrivals)


def share_out(
    trace: Trace, clients: int, cancel_rate: float, seed: int
) -> list[list[PlannedRequest]]:
    """Return each client's requests, by turns.

    A request is cancelled with the probability `cancel_rate`. The token at which this happens is
    random too. The same `seed` gives the same result.
    """
    random_numbers = random.Random(seed)
    shares: list[list[PlannedRequest]] = [[] for _ in range(clients)]
    for index, arrival in enumerate(trace.arrivals):
        cancelled = random_numbers.random() < cancel_rate
        at = random_numbers.randrange(arrival.output_tokens) if cancelled else NEVER
        request = PlannedRequest(arrival.at_s, arrival.output_tokens, at)
        shares[index % clients].append(request)
    return shares
