"""Count and time the steps that a rank of the bench publishes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tokenpipe.worker import Publishes

from .progress import TokenCounter
from .samples import Samples


class MeasuredPublisher:
    """A publisher that passes each call on to another one, and measures.

    `when_done` is called once `most_steps` or `most_rows` are published.
    """

    def __init__(
        self,
        pub: Publishes,
        counter: TokenCounter,
        *,
        most_steps: int | None = None,
        most_rows: int | None = None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._pub = pub
        self._counter = counter
        self._most_steps = most_steps
        self._most_rows = most_rows
        self._clock_ns = clock_ns
        self._began_ns: int | None = None  # of a step that is not published yet
        self._publish_ns = Samples()
        self._steps = self._rows = self._tokens = 0
        self.when_done: Callable[[], object] = lambda: None

    def publish(
        self,
        step: int,
        handles: Any,
        tokens: Any,
        counts: Any = None,
        status: Any = None,
        logprobs: Any = None,
        drained: Any = None,
        *,
        extras: Any = None,
    ) -> None:
        """Publish a step. Its time counts from the first attempt at a full lane."""
        began_ns = self._clock_ns() if self._began_ns is None else self._began_ns
        self._began_ns = began_ns
        self._pub.publish(step, handles, tokens, counts, status, logprobs, drained, extras=extras)
        self._publish_ns.add(self._clock_ns() - began_ns)
        self._began_ns = None
        self._steps += 1
        self._rows += len(handles)
        self._tokens += len(tokens)
        self._counter.add(len(tokens))
        if self._steps == self._most_steps or self._rows >= (self._most_rows or float("inf")):
            self.when_done()

    def poll(self) -> None:
        """Read acknowledgements."""
        self._pub.poll()

    @property
    def poll_within_s(self) -> float:
        """How long `poll` may wait."""
        return self._pub.poll_within_s

    def wait(self, timeout_s: float) -> None:
        """Wait for a message of the processor."""
        self._pub.wait(timeout_s)

    def fail(self, error: str | BaseException) -> None:
        """Report that this rank cannot go on."""
        self._pub.fail(error)

    def report(self) -> dict[str, Any]:
        """Return steps, rows and tokens that were published, and publish_us."""
        return {
            "steps": self._steps,
            "rows": self._rows,
            "tokens": self._tokens,
            "publish_us": self._publish_ns.us(),
        }


class DiscardingPublisher:
    """Take the arguments of a Publisher and send nothing, as a baseline for other runs."""

    poll_within_s = float("inf")  # nothing is ever due

    def publish(
        self,
        step: int,
        handles: Any,
        tokens: Any,
        counts: Any = None,
        status: Any = None,
        logprobs: Any = None,
        drained: Any = None,
        *,
        extras: Any = None,
    ) -> None:
        """Drop a step."""

    def poll(self) -> None:
        """Do nothing."""

    def wait(self, timeout_s: float) -> None:
        """Do nothing: no lane is full here."""

    def fail(self, error: str | BaseException) -> None:
        """Do nothing: the executor's exception ends this process."""
