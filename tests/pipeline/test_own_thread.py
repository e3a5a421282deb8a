"""Who waits for the pipeline in the thread that polls it waits for itself, and is told so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenpipe import (
    Client,
    Pipeline,
    Publisher,
    StartupError,
    StepLane,
    StepPlan,
    Submitted,
    Topology,
    WrongThread,
)
from tokenpipe.events import Event

SAID = "This process owns the pipeline: poll the pipeline in another thread"


@pytest.mark.parametrize("face", [Client, Publisher])
def test_in_the_thread_that_polls(runtime_dir: Path, face: Callable[[str], Any]) -> None:
    topology = Topology(runtime_dir=runtime_dir, clients=1, processors={"mode": "inline"})
    with Pipeline(topology) as pipe:
        began = time.monotonic()
        with pytest.raises(StartupError, match=SAID):
            face(pipe.endpoint)
        assert time.monotonic() - began < topology.timeouts.startup_s / 2
        closed = []
        other = threading.Thread(target=lambda: closed.append(face(pipe.endpoint).close()))
        other.start()  # nothing is left of the first
        while other.is_alive():
            pipe.wait(0.05)
            pipe.poll()
        assert closed == [0]


def test_in_another_thread_while_nobody_polls(runtime_dir: Path) -> None:
    topology = Topology(
        runtime_dir=runtime_dir,
        processors={"mode": "inline"},
        timeouts={"startup_s": 0.5},
    )
    said: list[str] = []

    def ask(endpoint: str) -> None:
        with pytest.raises(StartupError) as caught:
            Client(endpoint)
        said.append(str(caught.value))

    with Pipeline(topology) as pipe:
        other = threading.Thread(target=ask, args=(pipe.endpoint,))
        other.start()
        other.join()
    assert "no welcome within 0.5 s" in said[0] and SAID in said[0]


def test_the_thread_that_made_it_may_wait_where_another_polls(
    runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenpipe.transport.welcome.ALONE_S", 0.0)
    topology = Topology(runtime_dir=runtime_dir, processors={"mode": "inline"})
    with Pipeline(topology) as pipe:
        over, begun = threading.Event(), threading.Event()

        def engine() -> None:
            while not over.is_set():
                pipe.wait(0.05)
                pipe.poll()
                begun.set()

        thread = threading.Thread(target=engine)
        thread.start()
        try:
            begun.wait()
            Client(pipe.endpoint).close()
        finally:
            over.set()
            thread.join()


def elsewhere(use: Callable[[], object]) -> BaseException | None:
    """Call in another thread, and return what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            use()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="second")
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    return raised[0] if raised else None


@pytest.mark.case("F16")
def test_a_second_thread_gets_an_error_at_once(runtime_dir: Path) -> None:
    topology = Topology(runtime_dir=runtime_dir, timeouts={"close_s": 0.2})
    with Pipeline(topology) as pipe:
        lane = pipe.step_lane(0)
        done, made = threading.Event(), threading.Event()
        reader, pub, client = None, None, None

        def open_all() -> None:
            nonlocal reader, pub, client
            reader = StepLane.worker(pipe.endpoint)
            pub = Publisher(pipe.endpoint)
            client = Client(pipe.endpoint)
            made.set()
            done.wait(20)

        opening = threading.Thread(target=open_all)
        opening.start()
        while not made.is_set():
            pipe.wait(0.05)
            pipe.poll()
        assert reader is not None and pub is not None and client is not None
        # The thread that made them lives, but this one is the first to use them.
        uses: dict[str, tuple[Any, Callable[[], object]]] = {
            "Pipeline": (pipe, pipe.poll),
            "StepLane ": (lane, lambda: lane.send(StepPlan(1))),
            "StepLaneReader": (reader, reader.recv),
            "Publisher": (pub, lambda: pub.publish(1, [], [])),
            "Client": (client, lambda: client.cancel(1)),
        }
        pub.publish(0, [], [])
        for what, (_, use) in uses.items():
            if what != "Publisher":
                use()
            error = elsewhere(use)
            assert isinstance(error, WrongThread), what
            assert str(error).startswith(f"{what.strip()} belongs to thread 'MainThread'")
            assert "'second'" in str(error)
        pub.publish(1, [], [])  # the owner goes on
        assert pub.last_step == 1
        done.set()
        opening.join()
        assert elsewhere(client.close) is None  # nobody waits in it
        assert elsewhere(pub.close) is None and elsewhere(reader.close) is None


@pytest.mark.case("F16")
def test_two_threads_on_one_client(runtime_dir: Path) -> None:
    """Without the check libzmq aborts the process, or both wait for ever."""
    with Pipeline(Topology(runtime_dir=runtime_dir)) as pipe:
        clients: list[Client] = []
        over: list[str | None] = []

        def ask() -> None:
            with Client(pipe.endpoint) as client:
                clients.append(client)
                over.extend(output.finish_reason for output in client.generate([1, 2, 3]))

        def until(fact: Callable[[], object]) -> list[Event]:
            deadline, seen = time.monotonic() + 20, list[Event]()
            while not fact():
                assert time.monotonic() < deadline
                pipe.wait(0.01)
                seen += pipe.poll()
            return seen

        asking = threading.Thread(target=ask, name="first")
        asking.start()
        events = until(lambda: clients and clients[0]._guard._waits)
        (client,) = clients
        for use in (client.close, lambda: next(client.generate([1])), lambda: client.abort("x")):
            error = elsewhere(use)
            assert isinstance(error, WrongThread) and "thread 'first'" in str(error)
        while not (asked := [e.request for e in events if isinstance(e, Submitted)]):
            events += until(lambda: True) + pipe.poll()
            pipe.wait(0.01)
        pipe.reject(asked[0], "over")
        until(lambda: not asking.is_alive())
        assert over == ["error"]


@pytest.mark.case("F16")
def test_the_next_thread_may_go_on_when_the_first_has_ended(runtime_dir: Path) -> None:
    with Pipeline(Topology(runtime_dir=runtime_dir)) as pipe:
        assert elsewhere(pipe.poll) is None
        pipe.poll()
        assert isinstance(elsewhere(pipe.poll), WrongThread)
