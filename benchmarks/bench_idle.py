"""Ask what a topology costs that has nothing to do, and how soon it is awake again.

An engine with its processors, workers and clients, each a process, all of them connected and all
requests done. The engine does what an engine's loop does: `pipe.wait(0.1)`, `pipe.poll()`. CPU is
that of all threads, ZeroMQ's too, over the idle time alone. Then each client asks once more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tokenpipe.bench.machine_info import describe_machine
from tokenpipe.bench.process_usage import cpu_s
from tokenpipe.client import AsyncClient
from tokenpipe.engine import Scheduler
from tokenpipe.events import RankUp
from tokenpipe.pipeline import Pipeline
from tokenpipe.supervisor import ChildSpec, Supervisor
from tokenpipe.topology import Topology
from tokenpipe.types import SamplingParams

from .launch import START_S, Side, until
from .machine import settle

ENGINE_WAIT_S = 0.1
TOKENS = 8
Report = dict[str, Any]


def client(pipe: Connection, endpoint: str, index: int) -> None:
    """Ask, be idle until told otherwise, ask again."""
    asyncio.run(_ask_twice(pipe, endpoint, index))


async def _ask_twice(pipe: Connection, endpoint: str, index: int) -> None:
    async with AsyncClient(endpoint, name=f"client-{index}") as me:
        await _ask(me)
        settle()
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        pipe.send(await _ask(me))
        await asyncio.to_thread(pipe.recv)


async def _ask(me: AsyncClient) -> float:
    """Return ms from `generate` to the first item, and read to the end."""
    begin = time.perf_counter()
    first_ms = 0.0
    async for output in me.generate([1, 2, 3], SamplingParams(max_tokens=TOKENS)):
        first_ms = first_ms or 1e3 * (time.perf_counter() - begin)
        if output.error:
            raise RuntimeError(output.error)
    return first_ms


class Engine:
    """A pipeline, its workers and a small scheduler."""

    def __init__(self, pipe: Pipeline, children: Supervisor) -> None:
        self.pipe = pipe
        self._children = children
        ranks = range(pipe.topology.data_parallel_size)
        self._scheduler = Scheduler(
            pipe, {dp: pipe.step_lane(dp) for dp in ranks}, slots=pipe.topology.slots_per_rank
        )
        self._up: set[int] = set()
        self.workers = [
            children.start(
                ChildSpec(
                    "bench.worker",
                    f"{dp}.{tp}",
                    "tokenpipe.bench.worker",
                    ("--endpoint", pipe.endpoint, "--dp", str(dp), "--tp", str(tp)),
                )
            )
            for dp, tp in pipe.topology.workers
        ]
        until(lambda: self.turn() or len(self._up) == len(ranks), START_S, "all ranks up")

    def turn(self) -> bool:
        """Wait and work, as an engine's loop does; false."""
        self.pipe.wait(ENGINE_WAIT_S)
        events = self.pipe.poll()
        if events:
            now = time.monotonic()
            self._up.update(event.dp_rank for event in events if isinstance(event, RankUp))
            self._scheduler.handle(events, now)
            self._scheduler.schedule(now)
        return False

    def hear(self, side: Side) -> Any:
        """Work until a side says something."""
        until(lambda: self.turn() or side.spoke(), START_S, f"a word of {side.name}")
        return side.hear(1.0)

    def end(self) -> None:
        """Tell the workers that nothing follows and wait until they have left."""
        for dp in range(self.pipe.topology.data_parallel_size):
            self.pipe.step_lane(dp).end()

        def gone() -> bool:
            self.pipe.wait(ENGINE_WAIT_S)
            self.pipe.poll()
            self._children.poll()
            return all(child.died is not None for child in self.workers)

        until(gone, START_S, "the workers' leaving")

    def rest(self, seconds: float) -> None:
        """Go on for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn()


def wakes(pid: int | None) -> int:
    """Return how often threads of a process went to sleep by themselves."""
    total = 0
    for status in Path("/proc", str(pid or "self"), "task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def measure(topology: Topology, seconds: float) -> Report:
    """Return CPU in % of a core and wakes a second by role over an idle time."""
    with (
        tempfile.TemporaryDirectory(prefix="idle-") as scratch,
        Pipeline(topology) as pipe,
        Supervisor(Path(scratch)) as children,
    ):
        engine = Engine(pipe, children)
        sides = [Side(f"client {i}", client, pipe.endpoint, i) for i in range(topology.clients)]
        try:
            for side in sides:
                engine.hear(side)
            settle()
            pids: dict[str, list[int | None]] = {
                "engine": [None],
                "processors": list(pipe.processor_pids),
                "workers": [child.pid for child in engine.workers],
                "clients": [side.process.pid for side in sides],
            }
            engine.rest(2.0)  # what is left of the requests
            before = {role: [(cpu_s(p), wakes(p)) for p in some] for role, some in pids.items()}
            begin = time.monotonic()
            engine.rest(seconds)
            spent_s = time.monotonic() - begin
            roles = {
                role: {
                    "processes": len(some),
                    "cpu_percent": round(
                        sum(cpu_s(p) - was for p, (was, _) in zip(some, before[role], strict=True))
                        / spent_s
                        * 100,
                        3,
                    ),
                    "wakes_per_s": round(
                        sum(wakes(p) - was for p, (_, was) in zip(some, before[role], strict=True))
                        / spent_s,
                        1,
                    ),
                }
                for role, some in pids.items()
            }
            first_ms = []
            for side in sides:
                side.tell("ask")
                first_ms.append(engine.hear(side))
        finally:
            for side in sides:
                side.leave()
        engine.end()
    return {
        "seconds": round(spent_s, 1),
        "roles": roles,
        "cpu_percent": round(sum(role["cpu_percent"] for role in roles.values()), 3),
        "first_item_ms": [round(ms, 2) for ms in first_ms],
    }


def main(argv: list[str]) -> int:
    """Measure once and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_idle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--dp", type=int, default=2)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--processors", type=int, default=2)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args(argv)
    topology = Topology.model_validate(
        {
            "data_parallel_size": args.dp,
            "tensor_parallel_size": args.tp,
            "processors": {"count": args.processors},
            "clients": args.clients,
        }
    )
    report = measure(topology, args.seconds)
    view = Table("", "processes", "% of a core", "wakes a second")
    for role, row in report["roles"].items():
        view.add_row(
            role, str(row["processes"]), f"{row['cpu_percent']:.2f}", f"{row['wakes_per_s']:.0f}"
        )
    view.add_row(
        "together",
        str(sum(row["processes"] for row in report["roles"].values())),
        f"{report['cpu_percent']:.2f}",
        f"{sum(row['wakes_per_s'] for row in report['roles'].values()):.0f}",
    )
    first_ms = statistics.median(report["first_item_ms"])
    view.caption = (
        f"idle for {report['seconds']} s; then {first_ms:.1f} ms to a request's first item"
    )
    Console().print(view)
    if args.json is not None:
        args.json.write_text(json.dumps({"machine": describe_machine(), **report}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
