"""The victims of a run are its living processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tokenpipe.bench.bench_victims import BenchVictims


def child(pid: int, died: object = None) -> Any:
    return SimpleNamespace(pid=pid, died=died)


def test_dead_children_are_left_out() -> None:
    pipe = SimpleNamespace(processor_pids=[5, 6], endpoint="/run/x")
    processes = SimpleNamespace(
        workers=[child(1), child(2, "killed")], clients=[child(3, "ended"), child(4)]
    )
    victims = BenchVictims(cast(Any, pipe), cast(Any, processes))
    assert (victims.workers, victims.processors, victims.clients) == ([1], [5, 6], [4])
    assert victims.directory == Path("/run/x")
    processes.workers[0].died = "killed"
    assert victims.workers == []
