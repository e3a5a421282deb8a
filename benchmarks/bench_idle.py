"""Measure what an idle topology costs, and how soon it answers again.

The engine, its processors, workers and clients are connected, and all requests are done. The engine
runs an engine's loop: `pipe.wait(0.1)`, `pipe.poll()`. CPU is that of all threads, ZeroMQ's too,
during the idle time alone. Then each client submits one more request.
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
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from tokenpipe.bench.machine_info import describe_machine
from tokenpipe.bench.process_usage import cpu_s
from tokenpipe.client import AsyncClient
from tokenpipe.pipeline import Pipeline
from tokenpipe.supervisor import Supervisor
from tokenpipe.topology import Topology
from tokenpipe.types import SamplingParams

from .collector import freeze_collector
from .idle_engine import IdleEngine
from .processes import BenchProcess

BUSY_S = 2.0  # after the first requests, until all processes are idle
TOKENS = 8
Report = dict[str, Any]
Pids = list[int | None]  # None: this process


class Usage(NamedTuple):
    """What one process has used since its start."""

    cpu_s: float
    wakes: int  # how often a thread waited for something


def client(pipe: Connection, endpoint: str, index: int) -> None:
    """Submit a request, be idle until a message comes, submit another one."""
    asyncio.run(_ask_twice(pipe, endpoint, index))


async def _ask_twice(pipe: Connection, endpoint: str, index: int) -> None:
    async with AsyncClient(endpoint, name=f"client-{index}") as opened:
        await _ask(opened)
        freeze_collector()
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        pipe.send(await _ask(opened))
        await asyncio.to_thread(pipe.recv)


async def _ask(opened: AsyncClient) -> float:
    """Read a request to its end; return the ms from `generate` to the first item."""
    begin = time.perf_counter()
    first_ms = 0.0
    async for output in opened.generate([1, 2, 3], SamplingParams(max_tokens=TOKENS)):
        first_ms = first_ms or 1e3 * (time.perf_counter() - begin)
        if output.error:
            raise RuntimeError(output.error)
    return first_ms


def usage(pid: int | None) -> Usage:
    """Return the usage of a process."""
    wakes = 0
    for status in Path("/proc", str(pid or "self"), "task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                wakes += int(line.split()[1])
    return Usage(cpu_s(pid), wakes)


def measure(topology: Topology, seconds: float) -> Report:
    """Return CPU in % of a core and wake-ups a second of each role, over an idle time."""
    with (
        tempfile.TemporaryDirectory(prefix="idle-") as scratch,
        Pipeline(topology) as pipe,
        Supervisor(Path(scratch)) as children,
    ):
        engine = IdleEngine(pipe, children)
        clients = [
            BenchProcess(f"client {i}", client, pipe.endpoint, i) for i in range(topology.clients)
        ]
        try:
            for process in clients:
                engine.receive(process)
            freeze_collector()
            pids: dict[str, Pids] = {
                "engine": [None],
                "processors": list(pipe.processor_pids),
                "workers": [child.pid for child in engine.workers],
                "clients": [process.process.pid for process in clients],
            }
            engine.run_for(BUSY_S)
            report = _idle(engine, pids, seconds)
            first_ms = []
            for process in clients:
                process.send("ask")
                first_ms.append(engine.receive(process))
        finally:
            for process in clients:
                process.stop()
        engine.end()
    return {**report, "first_item_ms": [round(ms, 2) for ms in first_ms]}


def _idle(engine: IdleEngine, pids: dict[str, Pids], seconds: float) -> Report:
    """Run the idle engine for some time; return what each role used."""
    before = {role: [usage(pid) for pid in some] for role, some in pids.items()}
    begin = time.monotonic()
    engine.run_for(seconds)
    spent_s = time.monotonic() - begin
    roles = {role: _spent(pids[role], before[role], spent_s) for role in pids}
    return {
        "seconds": round(spent_s, 1),
        "roles": roles,
        "cpu_percent": round(sum(role["cpu_percent"] for role in roles.values()), 3),
    }


def _spent(pids: Pids, before: list[Usage], seconds: float) -> dict[str, float]:
    after = [usage(pid) for pid in pids]
    cpu = sum(now.cpu_s - was.cpu_s for now, was in zip(after, before, strict=True))
    wakes = sum(now.wakes - was.wakes for now, was in zip(after, before, strict=True))
    return {
        "processes": len(pids),
        "cpu_percent": round(cpu / seconds * 100, 3),
        "wakes_per_s": round(wakes / seconds, 1),
    }


def main(argv: list[str]) -> int:
    """Measure once and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_idle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="idle time")
    parser.add_argument("--dp", type=int, default=2, help="data-parallel ranks")
    parser.add_argument("--tp", type=int, default=2, help="tensor-parallel ranks")
    parser.add_argument("--processors", type=int, default=2, help="processor processes")
    parser.add_argument("--clients", type=int, default=2, help="client processes")
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
    Console().print(table(report))
    if args.json is not None:
        args.json.write_text(json.dumps({"machine": describe_machine(), **report}, indent=1))
    return 0


def table(report: Report) -> Table:
    """Return the figures by role."""
    shown = Table("", "processes", "% of a core", "wake-ups a second")
    for role, row in report["roles"].items():
        shown.add_row(
            role, str(row["processes"]), f"{row['cpu_percent']:.2f}", f"{row['wakes_per_s']:.0f}"
        )
    rows = report["roles"].values()
    shown.add_row(
        "together",
        str(sum(row["processes"] for row in rows)),
        f"{report['cpu_percent']:.2f}",
        f"{sum(row['wakes_per_s'] for row in rows):.0f}",
    )
    first_ms = statistics.median(report["first_item_ms"])
    shown.caption = (
        f"idle for {report['seconds']} s; a request's first item came after {first_ms:.1f} ms"
    )
    return shown


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
