"""Start the sides of a run, each a process, and add up what they report."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tokenpipe.bench.samples import percentiles_us

from . import sides
from .rivals.links import QueueLinks, ZmqLinks
from .workload import Workload

CONTEXT = multiprocessing.get_context("spawn")
START_S = 60.0
Report = dict[str, Any]


class Side:
    """One process of a run and the pipe to it."""

    def __init__(self, name: str, target: Callable[..., None], *args: Any) -> None:
        self.name = name
        self._pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=target, args=(theirs, *args), name=name, daemon=True)
        self.process.start()
        theirs.close()

    def tell(self, what: Any) -> None:
        """Send a word."""
        self._pipe.send(what)

    def hear(self, timeout_s: float) -> Any:
        """Return its next word. TimeoutError or EOFError where it does not come."""
        if not self._pipe.poll(timeout_s):
            raise TimeoutError(f"{self.name} said nothing for {timeout_s:.0f} s")
        return self._pipe.recv()

    def spoke(self) -> bool:
        """Say whether a word is there, or the end of it."""
        return self._pipe.poll(0)

    def leave(self) -> None:
        """Let it go; end it where it does not."""
        try:
            self._pipe.send("bye")
            self.process.join(10)
        except BrokenPipeError:
            self.process.join()  # it is gone already
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self._pipe.close()
        self.process.close()


def run_rival(label: str, work: Workload) -> Report:
    """Run a rival once."""
    with tempfile.TemporaryDirectory(prefix="rival-") as directory:
        names = ["steps", *(f"client{index}" for index in range(work.clients))]
        links: ZmqLinks | QueueLinks = ZmqLinks(directory)
        if label == "mp_queue":
            links = QueueLinks.make(CONTEXT, names)
        clients = [
            Side(f"{label} client {index}", sides.client, label, work, links, index)
            for index in range(work.clients)
        ]
        processor = Side(f"{label} processor", sides.processor, label, work, links)
        worker = Side(f"{label} worker", sides.worker, label, work, links)
        all_sides = [*clients, processor, worker]
        try:
            for side in all_sides:
                side.hear(START_S)
            for side in all_sides:
                side.tell("go")
            patience_s = START_S + 20 * work.seconds
            worked = worker.hear(patience_s)
            processed = processor.hear(patience_s)
            read = [side.hear(patience_s) for side in clients]
        finally:
            for side in all_sides:
                side.leave()
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
    """Return the time from a step's publish to its last consumer, less half a second at first."""
    steps = min(len(begins), *(len(last) for last in lasts))
    last = np.max([last[:steps] for last in lasts], axis=0)
    warm = int((work.rate or 0) / 2)
    took = (last - np.array(begins[:steps], dtype=np.int64))[warm:]
    quarter = max(1, len(took) // 4)
    first, end = np.median(took[:quarter]), np.median(took[-quarter:])
    return {
        "latency_us": percentiles_us(took),
        "backlog_growth": round(float(end / first), 2),  # last quarter's median to the first's
    }


def _items(counts: list[dict[int, int]]) -> dict[str, int]:
    total: Counter[int] = Counter()
    for each in counts:
        total.update(each)
    sizes = np.repeat(*map(np.array, zip(*sorted(total.items()), strict=True)))
    p50, p99, top = np.percentile(sizes, (50, 99, 100), method="higher")
    return {"p50": int(p50), "p99": int(p99), "max": int(top)}


def until(fact: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Call `fact`, which waits by itself, until it holds. TimeoutError names what did not."""
    deadline = time.monotonic() + timeout_s
    while not fact():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true within {timeout_s:.0f} s")
