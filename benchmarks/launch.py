"""Run a rival once, and add up what the processes of a run report."""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import Any

import numpy as np

from tokenpipe.bench.samples import percentiles_us

from . import rival_processes
from .processes import CONTEXT, START_S, BenchProcess
from .rivals.links import QueueLinks, ZmqLinks
from .workload import Workload

Report = dict[str, Any]


def run_rival(label: str, work: Workload) -> Report:
    """Run the rival `label` once; return its report."""
    with tempfile.TemporaryDirectory(prefix="rival-") as directory:
        names = ["steps", *(f"client{index}" for index in range(work.clients))]
        links: ZmqLinks | QueueLinks = ZmqLinks(directory)
        if label == "mp_queue":
            links = QueueLinks.make(CONTEXT, names)
        clients = [
            BenchProcess(
                f"{label} client {index}", rival_processes.client, label, work, links, index
            )
            for index in range(work.clients)
        ]
        processor = BenchProcess(
            f"{label} processor", rival_processes.processor, label, work, links
        )
        worker = BenchProcess(f"{label} worker", rival_processes.worker, label, work, links)
        processes = [*clients, processor, worker]
        try:
            for process in processes:
                process.receive(START_S)
            for process in processes:
                process.send("go")
            patience_s = START_S + 20 * work.seconds
            worked = worker.receive(patience_s)
            processed = processor.receive(patience_s)
            read = [client.receive(patience_s) for client in clients]
        finally:
            for process in processes:
                process.stop()
    return summarise(label, work, worked, processed["cpu_s"], read)


def summarise(
    label: str, work: Workload, worker: Report, processor_cpu_s: float, clients: list[Report]
) -> Report:
    """Return tokens/s, CPU µs per token of each role, latency and wrong tokens of one run."""
    expected = worker["tokens"]
    tokens = sum(client["tokens"] for client in clients)
    span_s = max(client["last_s"] for client in clients) - worker["begins"][0] / 1e9
    make_s = worker["make_us"] * worker["steps"] / 1e6
    cpu_s = {
        "worker": max(0.0, worker["cpu_s"] - make_s),
        "processor": processor_cpu_s,
        "client": sum(client["cpu_s"] - client["verify_s"] for client in clients),
    }
    cpu_s["total"] = sum(cpu_s.values())
    report: Report = {
        "label": label,
        "tokens": tokens,
        "wrong": expected - tokens + sum(client["wrong"] for client in clients),
        "seconds": round(span_s, 3),
        "tokens_per_s": round(tokens / span_s),
        "steps_per_s": round(worker["steps"] / worker["wall_s"], 1),
        "cpu_us_per_token": {k: round(1e6 * v / max(1, tokens), 4) for k, v in cpu_s.items()},
        "publish_us": worker["publish_us"],
    }
    report["errors"] = [error for client in clients for error in client.get("errors", ())]
    if work.streams:
        report["item_tokens"] = _items([client["items"] for client in clients])
    if work.rate and work.streams:
        report |= _latency(work, worker["begins"], [client["last_ns"] for client in clients])
    return report


def _latency(work: Workload, begins: list[int], lasts: list[Any]) -> Report:
    """Return the time from a step's publish to its last consumer. The first 0.5 s do not count.

    `backlog_growth` is the median of the last quarter over that of the first.
    """
    steps = min(len(begins), *(len(last) for last in lasts))
    last = np.max([last[:steps] for last in lasts], axis=0)
    warm = int((work.rate or 0) / 2)
    took = (last - np.array(begins[:steps], dtype=np.int64))[warm:]
    quarter = max(1, len(took) // 4)
    first, end = np.median(took[:quarter]), np.median(took[-quarter:])
    return {
        "latency_us": percentiles_us(took),
        "backlog_growth": round(float(end / first), 2),
    }


def _items(counts: list[dict[int, int]]) -> dict[str, int]:
    total: Counter[int] = Counter()
    for each in counts:
        total.update(each)
    sizes = np.repeat(*map(np.array, zip(*sorted(total.items()), strict=True)))
    p50, p99, top = np.percentile(sizes, (50, 99, 100), method="higher")
    return {"p50": int(p50), "p99": int(p99), "max": int(top)}
