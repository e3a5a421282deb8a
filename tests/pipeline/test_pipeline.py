"""The whole pipeline with real processes: what it carries, and what a kill -9 does to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tokenpipe import (
    AbortRequested,
    Client,
    ErrorCode,
    Finished,
    FinishReason,
    Pipeline,
    PrefillDone,
    ProcessorLost,
    ProcessorUp,
    Publisher,
    RankUp,
    Released,
    RequestOutput,
    Rescheduled,
    SamplingParams,
    Submitted,
    Topology,
)
from tokenpipe.bench.options import Options
from tokenpipe.bench.run import run
from tokenpipe.errors import LaneLost
from tokenpipe.events import Event


def serve_until(
    pipe: Pipeline, fact: Callable[[list[Event]], bool], *pubs: Publisher
) -> list[Event]:
    """Collect events until the fact holds; a minute is a failure."""
    seen: list[Event] = []
    deadline = time.monotonic() + 20
    while not fact(seen):
        assert time.monotonic() < deadline, seen
        for pub in pubs:
            pub.poll()
        pipe.wait(0.02)
        seen += pipe.poll()
    return seen


def open_publisher(pipe: Pipeline, dp_rank: int = 0) -> Publisher:
    """Open a publisher while this thread serves the pipeline."""
    made: list[Publisher] = []
    opening = threading.Thread(target=lambda: made.append(Publisher(pipe.endpoint, dp_rank)))
    opening.start()
    while opening.is_alive():
        pipe.wait(0.02)
    return made[0]


def close(pipe: Pipeline, pub: Publisher) -> None:
    """Close a publisher while this thread serves the pipeline."""
    closing = threading.Thread(target=pub.close)
    closing.start()
    finish(pipe, closing)


def finish(pipe: Pipeline, thread: threading.Thread) -> None:
    """Wait for a thread that needs the pipeline's answers to end; its events are dropped."""
    deadline = time.monotonic() + 10
    while thread.is_alive():
        assert time.monotonic() < deadline
        pipe.wait(0.02)
        pipe.poll()


class Asking(threading.Thread):
    """A client that asks for one request and keeps its outputs."""

    def __init__(self, endpoint: str, tokens: int) -> None:
        super().__init__()
        self.endpoint, self.tokens = endpoint, tokens
        self.outputs: list[RequestOutput] = []
        self.start()

    def run(self) -> None:
        with Client(self.endpoint) as client:
            params = SamplingParams(max_tokens=self.tokens)
            for out in client.generate([1, 2, 3], params, request_id="a"):
                self.outputs.append(out)


E = TypeVar("E")


def pick(events: list[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize("mode", ["process", "inline"])
def test_preempted_and_bound_elsewhere_the_stream_goes_on(runtime_dir: Path, mode: str) -> None:
    topology = Topology(runtime_dir=runtime_dir, processors={"mode": mode})
    with Pipeline(topology) as pipe:
        pub = open_publisher(pipe)
        serve_until(pipe, lambda seen: bool(pick(seen, RankUp)), pub)
        asking = Asking(pipe.endpoint, 6)
        (submitted,) = pick(serve_until(pipe, lambda s: bool(pick(s, Submitted)), pub), Submitted)
        assert isinstance(submitted, Submitted)
        with pipe.commands() as cmd:
            first = cmd.bind(submitted.request, slot=3)
        pub.publish(1, [first], [10])
        pub.publish(2, [first, first], [11, 12])
        with pipe.commands() as cmd:
            cmd.preempt(first)
        pub.publish(3, [first], [13])  # in flight when the preemption was decided
        pub.publish(4, [], [], drained=[first])
        seen = serve_until(pipe, lambda s: bool(pick(s, Released)), pub)
        (rescheduled,) = pick(seen, Rescheduled)
        assert isinstance(rescheduled, Rescheduled)
        assert rescheduled.output_token_ids == [10, 11, 12, 13]
        with pipe.commands() as cmd:
            second = cmd.bind(submitted.request, slot=0)
        pub.publish(5, [second], [14, 15], counts=[2])
        (finished,) = pick(serve_until(pipe, lambda s: bool(pick(s, Finished)), pub), Finished)
        assert isinstance(finished, Finished)
        assert (finished.finish_reason, finished.output_tokens) == (FinishReason.LENGTH, 6)
        finish(pipe, asking)
        assert [t for out in asking.outputs for t in out.token_ids] == [10, 11, 12, 13, 14, 15]
        assert [out.finish_reason for out in asking.outputs][-1] == FinishReason.LENGTH
        pub.publish(6, [], [], drained=[second])
        serve_until(pipe, lambda s: bool(pick(s, Released)), pub)
        close(pipe, pub)


def test_prefilled_here_decoded_there_and_moved_again(runtime_dir: Path) -> None:
    """Two ranks, each with a processor of its own: the stream passes from one to the other."""
    topology = Topology(
        runtime_dir=runtime_dir, data_parallel_size=2, processors={"count": 2}, eos_token_ids=[2]
    )
    with Pipeline(topology) as pipe:
        pubs = [open_publisher(pipe, dp) for dp in (0, 1)]
        serve_until(pipe, lambda seen: len(pick(seen, RankUp)) == 2, *pubs)
        asking = Asking(pipe.endpoint, 100)
        (submitted,) = pick(serve_until(pipe, lambda s: bool(pick(s, Submitted)), *pubs), Submitted)
        assert isinstance(submitted, Submitted)
        with pipe.commands(0) as cmd:
            prefill = cmd.bind(submitted.request, slot=1, prefill=True)
        pubs[0].publish(1, [prefill], [10])
        (done,) = pick(serve_until(pipe, lambda s: bool(pick(s, PrefillDone)), *pubs), PrefillDone)
        assert isinstance(done, PrefillDone) and done.output_token_ids == [10]
        with pipe.commands(1) as cmd:
            decode = cmd.bind(done.request, slot=7)
        pubs[0].publish(2, [prefill], [666], drained=[prefill])  # beyond its end: an overrun
        pubs[1].publish(1, [decode], [11, 12], counts=[2])
        with pipe.commands(1) as cmd:
            cmd.preempt(decode)
        pubs[1].publish(2, [decode], [13], drained=[decode])
        (moved,) = pick(serve_until(pipe, lambda s: bool(pick(s, Rescheduled)), *pubs), Rescheduled)
        assert isinstance(moved, Rescheduled) and moved.output_token_ids == [10, 11, 12, 13]
        with pipe.commands(0) as cmd:
            last = cmd.bind(moved.request, slot=1)
        pubs[0].publish(3, [last], [14, 2, 15], counts=[3], drained=[last])
        (end,) = pick(serve_until(pipe, lambda s: bool(pick(s, Finished)), *pubs), Finished)
        assert isinstance(end, Finished)
        assert (end.finish_reason, end.stop_reason, end.output_tokens) == (FinishReason.STOP, 2, 6)
        finish(pipe, asking)
        assert [t for out in asking.outputs for t in out.token_ids] == [10, 11, 12, 13, 14, 2]
        assert asking.outputs[-1].usage is not None
        assert asking.outputs[-1].usage.completion_tokens == 6
        for pub in pubs:
            close(pipe, pub)


def test_a_killed_processor_without_a_journal_is_named_answered_and_replaced(
    runtime_dir: Path, no_journal: None
) -> None:
    with Pipeline(Topology(runtime_dir=runtime_dir)) as pipe:
        pub = open_publisher(pipe)
        serve_until(pipe, lambda seen: bool(pick(seen, RankUp)), pub)
        asking = Asking(pipe.endpoint, 100)
        (submitted,) = pick(serve_until(pipe, lambda s: bool(pick(s, Submitted)), pub), Submitted)
        assert isinstance(submitted, Submitted)
        with pipe.commands() as cmd:
            handle = cmd.bind(submitted.request, slot=0)
        pub.publish(1, [handle], [10])
        while not asking.outputs:
            pipe.wait(0.02)
        killed = time.monotonic()
        os.kill(pipe.processor_pids[0], signal.SIGKILL)
        seen = serve_until(pipe, lambda s: bool(pick(s, ProcessorLost)), pub)
        assert time.monotonic() - killed < 2.0
        (finished,) = pick(seen, Finished)
        assert isinstance(finished, Finished) and finished.finish_reason == FinishReason.ERROR
        assert len(pick(seen, Released)) > 0 and len(pick(seen, ProcessorUp)) > 0
        finish(pipe, asking)
        assert asking.outputs[-1].finish_reason == FinishReason.ERROR
        assert "processor 0 was lost" in (asking.outputs[-1].error or "")
        assert asking.outputs[-1].error_code is ErrorCode.LOST

        serve_until(pipe, lambda s: bool(pick(s, RankUp)), pub)  # the worker is found again
        while not pub.ready:
            pub.poll()
            pipe.wait(0.02)
        again = Asking(pipe.endpoint, 2)
        (submitted,) = pick(serve_until(pipe, lambda s: bool(pick(s, Submitted)), pub), Submitted)
        assert isinstance(submitted, Submitted)
        with pipe.commands() as cmd:
            handle = cmd.bind(submitted.request, slot=0)
        try:
            pub.publish(7, [handle], [20, 21], counts=[2])
        except LaneLost as error:  # a receiver that was just welcomed does not lose a lane
            pytest.fail(str(error))
        serve_until(pipe, lambda s: bool(pick(s, Finished)), pub)
        finish(pipe, again)
        assert [t for out in again.outputs for t in out.token_ids] == [20, 21]
        close(pipe, pub)


@pytest.mark.case("B38")
def test_a_client_that_goes_is_given_up_and_its_request_aborted_once(runtime_dir: Path) -> None:
    with Pipeline(Topology(runtime_dir=runtime_dir, processors={"mode": "inline"})) as pipe:
        pub = open_publisher(pipe)
        serve_until(pipe, lambda seen: bool(pick(seen, RankUp)), pub)

        def leave_early() -> None:
            with Client(pipe.endpoint) as client:
                outputs = client.generate([1], SamplingParams(max_tokens=50))
                next(outputs)

        asking = threading.Thread(target=leave_early)
        asking.start()
        (submitted,) = pick(serve_until(pipe, lambda s: bool(pick(s, Submitted)), pub), Submitted)
        assert isinstance(submitted, Submitted)
        with pipe.commands() as cmd:
            handle = cmd.bind(submitted.request, slot=0)
        pub.publish(1, [handle], [10])
        serve_until(pipe, lambda s: bool(pick(s, AbortRequested)), pub)
        with pipe.commands() as cmd:
            for _ in range(100):
                cmd.abort(submitted.request)
        pub.publish(2, [], [], drained=[handle])
        seen = serve_until(pipe, lambda s: bool(pick(s, Released)), pub)
        assert [
            type(event).__name__ for event in seen if getattr(event, "handle", 0) == handle
        ] == [
            "Aborted",
            "Released",
        ]
        finish(pipe, asking)
        close(pipe, pub)


@pytest.mark.case("B02")
def test_every_rank_is_read_and_every_token_arrives() -> None:
    report = run(Options(dp=4, tp=1, batch=16, requests=200, preempt_rate=0.2, abort_rate=0.1))
    assert report["ok"], report
    assert report["ended"] == 200


@pytest.mark.case("B44")
@pytest.mark.soak
def test_a_hundred_thousand_short_requests_leave_nothing() -> None:
    # Paced: in a flood most of them have ended before an abort gets there.
    report = run(Options(batch=256, requests=100_000, abort_rate=0.6, rate=800.0, seed=3))
    assert report["ok"], report
    assert report["events"]["Aborted"] > 20_000
    assert report["events"]["Released"] == report["events"]["binds"]


def test_the_bench_ends_cleanly_on_ctrl_c(tmp_path: Path) -> None:
    topology = tmp_path / "t.yaml"
    base = tmp_path / "run"
    base.mkdir(mode=0o700)
    topology.write_text(f"runtime_dir: {base}\n")
    arguments = ["--steps", "100000000", "--rate", "100", "--topology", str(topology)]
    with open(tmp_path / "out", "wb") as out:
        bench = subprocess.Popen(
            [sys.executable, "-m", "tokenpipe.bench", *arguments], stdout=out, stderr=out
        )
        deadline = time.monotonic() + 45
        while not list(base.glob("*/client*.lock")):  # clients are there: it runs
            assert bench.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        bench.send_signal(signal.SIGINT)
        assert bench.wait(45) == 130, (tmp_path / "out").read_text()
    assert list(base.iterdir()) == []
