"""List the processes and lanes of a topology, and the owner of each socket. Starts nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tokenpipe.instance import (
    command_lane,
    output_lane,
    own_output_lane,
    report_lane,
    step_lane,
    submit_lane,
    worker_lane,
)
from tokenpipe.topology import Topology

OWN = "own process"


class ProcessEntry(NamedTuple):
    """A process, or a role inside another process."""

    role: str
    rank: str
    runs_in: str  # "own process", or role and rank of the other process
    started_by: str
    owns: str


class LaneEntry(NamedTuple):
    """A lane: a socket in the instance's directory. The receiver binds and owns it."""

    socket: str
    carries: str
    sender: str
    receiver: str
    most_bytes: int  # bound of the unacknowledged bytes, which the sender keeps


class Layout(NamedTuple):
    """All parts of an instance. The lanes of a client exist once the client attaches."""

    directory: str
    processes: tuple[ProcessEntry, ...]
    lanes: tuple[LaneEntry, ...]

    def to_json_dict(self, topology: Topology) -> dict[str, Any]:
        """Return plain values for JSON, with the whole configuration."""
        return {
            "directory": self.directory,
            "processes": [process._asdict() for process in self.processes],
            "lanes": [lane._asdict() for lane in self.lanes],
            "topology": topology.to_json_dict(),
        }


def layout_of(topology: Topology) -> Layout:
    """Return the processes and lanes of a topology."""
    base = topology.runtime_dir or "<private runtime directory>"
    return Layout(
        f"{base}/{topology.name or '<random>'}",
        tuple(_processes(topology)),
        tuple(_lanes(topology)),
    )


def _processes(t: Topology) -> Iterator[ProcessEntry]:
    inline = t.processors.mode == "inline"
    yield ProcessEntry("pipeline", "0", OWN, "you", "the instance and its directory")
    for p in range(t.processor_count):
        ranks = t.ranks_of(p)
        owns = f"DP rank {ranks[0]}" if len(ranks) == 1 else f"DP ranks {ranks[0]} to {ranks[-1]}"
        where, parent = ("pipeline 0", "pipeline 0") if inline else (OWN, "pipeline 0")
        yield ProcessEntry("processor", str(p), where, parent, owns)
    for dp, tp in t.workers:
        others = "its rows are compared" if t.tp_policy == "verify" else "it need not send rows"
        owns = f"slots of DP rank {dp}; {'its rows count' if tp == 0 else others}"
        yield ProcessEntry("worker", f"{dp}.{tp}", OWN, "you", owns)
    last = t.clients - 1
    yield ProcessEntry("client", f"0 to {last}" if last else "0", OWN, "you", "its own requests")


def _lanes(t: Topology) -> Iterator[LaneEntry]:
    bounds = t.bounds
    inline = t.processors.mode == "inline"
    for dp, tp in t.workers:
        worker, processor = f"worker {dp}.{tp}", f"processor {t.processor_of(dp)}"
        yield LaneEntry(worker_lane(dp, tp), "steps", worker, processor, bounds.lane_bytes)
    for dp, tp in t.workers:
        lane, worker = step_lane(dp, tp), f"worker {dp}.{tp}"
        yield LaneEntry(lane, "step plans, where used", "pipeline 0", worker, bounds.lane_bytes)
    for p in range(0 if inline else t.processor_count):
        processor, most = f"processor {p}", bounds.lane_bytes
        yield LaneEntry(command_lane(p), "commands", "pipeline 0", processor, most)
        yield LaneEntry(report_lane(p), "outcomes", processor, "pipeline 0", most)
    for c in range(t.clients):
        client = f"client {c}"
        yield LaneEntry(submit_lane(c), "requests", client, "pipeline 0", bounds.lane_bytes)
        own = own_output_lane(c)
        yield LaneEntry(own, "final rows", "pipeline 0", client, bounds.client_window_bytes)
        for p in range(t.processor_count):
            lane, processor = output_lane(p, c), f"processor {p}"
            yield LaneEntry(lane, "output", processor, client, bounds.client_window_bytes)
