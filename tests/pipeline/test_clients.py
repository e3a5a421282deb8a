"""Places for clients: taken, given up, taken again."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.instance.test_lock_watch import no_descriptors
from tests.pipeline.engine import Asking, engine
from tests.pipeline.test_deaths import readable
from tests.transport.child import child
from tokenpipe import (
    AbortRequested,
    ClientLost,
    ErrorCode,
    Event,
    Pipeline,
    Submitted,
    Topology,
)

SUBMITTER = """
import sys, tokenpipe
with tokenpipe.Client(sys.argv[1]) as client:
    for _ in range(3):
        client.submit([1], tokenpipe.SamplingParams(max_tokens=5))
    print("submitted", flush=True)
    sys.stdin.read()
"""


def until(pipe: Pipeline, events: list[Event], kind: type, count: int = 1) -> None:
    deadline = time.monotonic() + 20
    while sum(isinstance(event, kind) for event in events) < count:
        assert time.monotonic() < deadline, events
        pipe.wait(0.05)
        events += pipe.poll()


def killed_client(pipe: Pipeline, events: list[Event]) -> list[Submitted]:
    """Have a client submit three requests and die."""
    command = [sys.executable, "-c", SUBMITTER, pipe.endpoint]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        until(pipe, events, Submitted, 3)
        client.kill()
    return [event for event in events if isinstance(event, Submitted)]


def test_the_last_word_to_a_dead_client_is_dropped(runtime_dir: Path) -> None:
    topology = Topology(runtime_dir=runtime_dir, clients=1, processors={"mode": "inline"})
    with Pipeline(topology) as pipe:
        events: list[Event] = []
        first, second, third = killed_client(pipe, events)
        link = pipe._resources.clients._links[0]
        assert link._output is not None
        deadline = time.monotonic() + 5
        while not link._output.lost:  # the lane knows it before the pipeline does
            assert time.monotonic() < deadline
            link._output.poll()
        pipe.reject(first.request, "no room")
        with pipe.commands() as cmd:
            cmd.abort(second.request)
        pipe.reject(third.request, "no room")
        until(pipe, events, ClientLost)
        assert not pipe._table.requests
        assert not [e for e in events if isinstance(e, AbortRequested)]  # they had ended


@pytest.mark.case("B39")
def test_what_a_dead_client_had_never_reaches_the_next_in_its_place(
    runtime_dir: Path, tmp_path: Path
) -> None:
    topology = Topology(runtime_dir=runtime_dir, clients=1, processors={"mode": "inline"})
    with Pipeline(topology) as pipe:
        events: list[Event] = []
        killed_client(pipe, events)
        until(pipe, events, ClientLost)
        until(pipe, events, AbortRequested, 3)
        again = Asking(pipe.endpoint, [7])
        until(pipe, events, Submitted, 4)
        with pipe.commands() as cmd:
            for event in events:
                if isinstance(event, AbortRequested):
                    cmd.abort(event.request)
        link = pipe._resources.clients._links[0]
        assert link.client and not link._rows
        (last,) = [e for e in events if isinstance(e, Submitted)][3:]
        assert isinstance(last, Submitted)
        with pytest.raises(ValueError, match="NONE"):
            pipe.reject(last.request, "no error", ErrorCode.NONE)
        pipe.reject(last.request, "that is all", ErrorCode.UNAVAILABLE)
        while again.is_alive():
            pipe.wait(0.05)
            events += pipe.poll()
        assert [a.error for a in again.answers] == ["that is all"]
        assert [a.code for a in again.answers] == [ErrorCode.UNAVAILABLE]
        assert not pipe._table.requests


def test_a_place_is_taken_again_and_again(runtime_dir: Path, tmp_path: Path) -> None:
    topology = Topology(
        runtime_dir=runtime_dir, clients=1, slots_per_rank=4, processors={"mode": "inline"}
    )
    with engine(topology, tmp_path) as it:
        ports = len(it.pipe._resources.waiter._ports)
        for _ in range(10):
            answers = it.join(Asking(it.pipe.endpoint, [5, 50]))
            assert all(a.right and not a.error for a in answers)
        it.until(lambda: len(it.seen(ClientLost)) == 10)
        assert (
            len(it.pipe._resources.waiter._ports) == ports
        )  # nobody waits on the lanes of the gone


LATE = """
import sys, tokenpipe
print("started", flush=True)
sys.stdin.readline()
with tokenpipe.Client(sys.argv[1]) as client:
    params = tokenpipe.SamplingParams(max_tokens=20)
    outs = list(client.generate([1], params))
print(sum(len(out.token_ids) for out in outs), outs[-1].error, flush=True)
"""


@pytest.mark.case("F02")
@pytest.mark.parametrize("short", ["engine", "processor"])
def test_a_client_that_comes_without_descriptors_waits_and_harms_nobody(
    runtime_dir: Path, tmp_path: Path, short: str
) -> None:
    topology = Topology(runtime_dir=runtime_dir, clients=2, slots_per_rank=8)
    with engine(topology, tmp_path) as it, child(LATE, it.pipe.endpoint) as late:
        asking = Asking(it.pipe.endpoint, [3000] * 4)
        it.until(lambda: asking.got > 100)
        (processor,) = it.pipe.processor_pids
        soft, hard = resource.prlimit(processor, resource.RLIMIT_NOFILE)
        assert late.stdin is not None and late.stdout is not None
        if short == "engine":
            shortage: AbstractContextManager[object] = no_descriptors()
        else:
            shortage = nullcontext()
            resource.prlimit(processor, resource.RLIMIT_NOFILE, (4, hard))
        assert late.stdout.readline() == "started\n"
        late.stdin.write("\n")
        late.stdin.flush()
        if short == "engine":  # libzmq's thread aborts where it cannot accept a connection
            port = it.pipe._resources.clients._links[1]._submits.port
            assert eventually(port.readable)
        with shortage:
            got = asking.got
            waits = it_waits if short == "engine" else said_it_waits
            it.until(lambda: waits(it.pipe))
            it.until(lambda: asking.got > got + 100)
        resource.prlimit(processor, resource.RLIMIT_NOFILE, (soft, hard))
        assert all(a.right and a.reason == "length" for a in it.join(asking))
        it.until(partial(readable, late.stdout))
        assert late.stdout.readline() == "20 None\n"


def said_it_waits(pipe: Pipeline) -> bool:
    (log,) = pipe.log_dir.glob("processor-*.log")
    return "client 1 must wait: Too many open files" in log.read_text()


def it_waits(pipe: Pipeline) -> bool:
    return any(link._unopened for link in pipe._resources.clients._links)
