"""The bench's engine: how it plans, when it fails, what it measures."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tokenpipe import Client, Pipeline, Publisher, SamplingParams, StepLane, StepPlan, Topology
from tokenpipe.bench.bench_engine import LOCKSTEP_STEPS, BenchEngine
from tokenpipe.bench.bench_processes import BenchFailed
from tokenpipe.bench.options import Options
from tokenpipe.events import Event
from tokenpipe.worker import StepLaneReader

T = TypeVar("T")


@contextmanager
def engine_of(base: Path, **topology: Any) -> Iterator[BenchEngine]:
    options = Options(preempt_rate=0.0, abort_rate=0.0)
    with Pipeline(Topology(runtime_dir=base, slots_per_rank=4, **topology)) as pipe:
        yield BenchEngine(pipe, options)


def beside(engine: BenchEngine, work: Callable[[], T]) -> T:
    """Run `work` in a thread while the engine takes turns; return its result."""
    done: list[T] = []
    thread = threading.Thread(target=lambda: done.append(work()))
    thread.start()
    while thread.is_alive():
        engine.turn(0.005)
    (result,) = done
    return result


def until(engine: BenchEngine, fact: Callable[[list[Event]], object]) -> None:
    for _ in range(2000):
        if fact(engine.turn(0.005)):
            return
    raise AssertionError("it did not happen")


def open_publishers(engine: BenchEngine, opened: ExitStack, tp: int = 1) -> None:
    for rank in range(tp):
        pub = beside(engine, partial(Publisher, engine.pipe.endpoint, 0, rank))
        opened.callback(beside, engine, pub.close)


def open_lanes(engine: BenchEngine, opened: ExitStack, tp: int = 1) -> list[StepLaneReader]:
    lanes = []
    for rank in range(tp):
        lanes.append(beside(engine, partial(StepLane.worker, engine.pipe.endpoint, 0, rank)))
        opened.callback(beside, engine, lanes[-1].close)
    return lanes


def test_in_lockstep_a_plan_waits_until_all_ranks_have_read_the_last_one(
    runtime_dir: Path,
) -> None:
    topology = {"tensor_parallel_size": 2, "tp_policy": "verify", "processors": {"mode": "inline"}}
    with engine_of(runtime_dir, **topology) as engine, ExitStack() as opened:
        open_publishers(engine, opened, tp=2)
        lanes = open_lanes(engine, opened, tp=2)
        client = beside(engine, partial(Client, engine.pipe.endpoint))
        opened.callback(beside, engine, client.close)
        client.submit([1], SamplingParams(max_tokens=5))
        until(engine, lambda _: engine.scheduler.running == 1)
        for _ in range(20):
            engine.turn(0.005)
        plans: list[list[StepPlan]] = [[], []]

        def all_have_read(number: int) -> bool:
            for got, lane in zip(plans, lanes, strict=True):
                got += lane.recv(0.0)
            return all(len(got) >= number for got in plans)

        until(engine, lambda _: all_have_read(1))
        assert [len(got) for got in plans] == [1, 1]  # though there were 20 turns
        until(engine, lambda _: all_have_read(2))
        assert {plan.steps for got in plans for plan in got} == {LOCKSTEP_STEPS}
        assert [len(plan.binds) for plan in plans[0][:2]] == [1, 0]


def test_workers_are_told_that_no_plan_follows(runtime_dir: Path) -> None:
    with engine_of(runtime_dir) as engine, ExitStack() as opened:
        (lane,) = open_lanes(engine, opened)
        engine.end_workers()
        until(engine, lambda _: not lane.recv(0.0) and lane.ended)


def test_a_lost_processor_ends_the_bench(runtime_dir: Path) -> None:
    with engine_of(runtime_dir) as engine:
        os.kill(engine.pipe.processor_pids[0], signal.SIGKILL)
        with pytest.raises(BenchFailed, match="processor 0 was lost"):
            until(engine, lambda _: False)


def test_usage_begins_when_it_is_told_to(runtime_dir: Path) -> None:
    with engine_of(runtime_dir) as engine:
        for _ in range(20):
            engine.turn(0.0)
        before = engine.usage()
        engine.start_measuring()
        after = engine.usage()
        assert 0 < after["cpu_s"] < before["cpu_s"]
        assert before["processor_cpu_s"] >= 0
        memory = engine.memory_mb()
        assert memory["engine"] > 10 and memory["processor"] > 10
