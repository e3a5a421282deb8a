"""Start the processes of a run, and exchange messages with them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

CONTEXT = multiprocessing.get_context("spawn")
START_S = 60.0


class BenchProcess:
    """One process of a run, and a pipe to it.

    It runs `target(pipe, *args)`. When it has told its result, it stays until `stop`, because a
    socket that closes early may lose its last message.
    """

    def __init__(self, name: str, target: Callable[..., None], *args: Any) -> None:
        self.name = name
        self._pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=target, args=(theirs, *args), name=name, daemon=True)
        self.process.start()
        theirs.close()

    def send(self, message: Any) -> None:
        """Send it a message."""
        self._pipe.send(message)

    def receive(self, timeout_s: float) -> Any:
        """Return its next message. TimeoutError or EOFError if there is none."""
        if not self._pipe.poll(timeout_s):
            raise TimeoutError(f"{self.name} sent no message for {timeout_s:.0f} s")
        return self._pipe.recv()

    def has_message(self) -> bool:
        """Return whether a message is there, or the process has ended."""
        return self._pipe.poll(0)

    def stop(self) -> None:
        """Let it end; kill it if it does not."""
        try:
            self._pipe.send("stop")
            self.process.join(10)
        except BrokenPipeError:
            self.process.join()  # it has ended already
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self._pipe.close()
        self.process.close()


def until(fact: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Call `fact` until it is true; it must wait by itself. TimeoutError names `what`."""
    deadline = time.monotonic() + timeout_s
    while not fact():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}")
