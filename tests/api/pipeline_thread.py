"""A real pipeline without workers, in a thread, for the client of an API server to attach to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenpipe import ErrorCode, ModelCard, Pipeline, Submitted, Topology


@contextmanager
def pipeline(runtime_dir: Path, card: ModelCard | None = None) -> Iterator[Path]:
    """Give the instance's directory, which is always the same; every request is rejected."""
    topology = Topology(runtime_dir=runtime_dir, name="it", processors={"mode": "inline"})
    made: list[Pipeline] = []
    ready, stop = threading.Event(), threading.Event()

    def run() -> None:
        with Pipeline(topology, model_card=card) as pipe:
            made.append(pipe)
            ready.set()
            while not stop.is_set():
                pipe.wait(0.01)
                for event in pipe.poll():
                    if isinstance(event, Submitted):
                        pipe.reject(event.request, "no worker is up", ErrorCode.UNAVAILABLE)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(20)
        yield Path(made[0].endpoint)
    finally:
        stop.set()
        thread.join()
