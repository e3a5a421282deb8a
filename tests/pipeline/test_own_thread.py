"""Who waits for the pipeline in the thread that polls it waits for itself, and is told so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenpipe import Client, Pipeline, Publisher, StartupError, Topology

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
