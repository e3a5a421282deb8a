"""Send commands to processors, read their reports, and replace dead ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tokenpipe.errors import LaneError, ProcessorFailed, StartupError
from tokenpipe.supervisor import Supervisor
from tokenpipe.topology import Topology
from tokenpipe.wire import Message, ProcessorStarted

from .counts import Counts
from .links import ProcessorLink
from .pool import Pool


class Death(NamedTuple):
    """A processor died, and its requests with it.

    `why`: the next process runs already, and could not go on with the requests for this reason.
    `failure`: there is no next process.
    """

    processor: int
    ranks: Sequence[int]
    reason: str
    why: str = ""
    failure: ProcessorFailed | None = None


class WentOn(NamedTuple):
    """A processor died, and the next process has its requests."""

    processor: int
    reason: str


class ProcessorSet:
    """The links to all processors. A link is replaced when its processor dies."""

    def __init__(
        self, pool: Pool, topology: Topology, supervisor: Supervisor, clock: Callable[[], float]
    ) -> None:
        """Start nothing yet."""
        self._pool = pool
        self._topology = topology
        self._supervisor = supervisor
        self._clock = clock
        self._links: list[ProcessorLink] = []
        self.counts = Counts(self._links)
        self._starting = True
        self._given_up: list[Death] = []

    def start(self, wait: Callable[[float], object]) -> None:
        """Start all processors and wait until each is ready.

        `wait(seconds)` waits that long at most and does the pipeline's work. Raises StartupError
        if a processor is late or dies.
        """
        for index in range(self._topology.processor_count):
            self._links.append(self._pool.start(index))
        startup_s = self._topology.timeouts.startup_s
        end = self._clock() + startup_s
        while late := [str(link.index) for link in self._links if not link.ready]:
            if self._clock() >= end:
                raise StartupError(
                    f"processor {', '.join(late)}: no welcome within {startup_s} s; its output "
                    f"is in {self._supervisor.log_dir}"
                )
            wait(0.05)
        self._starting = False

    @property
    def next_deadline(self) -> float:
        """The time at which `reports` is due next if no message comes."""
        return min((link.next_deadline for link in self._links), default=float("inf"))

    def dispatch(self, dp_rank: int, messages: Sequence[Message]) -> None:
        """Send commands to the processor that owns a DP rank."""
        self._links[self._topology.processor_of(dp_rank)].dispatch(messages)

    def broadcast(self, message: Message) -> None:
        """Send a command to all processors."""
        for link in self._links:
            link.dispatch([message])

    def reports(self) -> Iterator[Message | Death | WentOn]:
        """Yield the reports of all processors, and what the next process of a dead one says."""
        for link in self._links:
            for report in link.poll():
                if not isinstance(report, ProcessorStarted):
                    yield report
                elif link.going_on and report.why:
                    yield Death(link.index, link.ranks, link.death, report.why)
                elif link.going_on:
                    reason = link.death
                    link.gone_on()
                    yield WentOn(link.index, reason)

    def deaths(self) -> list[Death]:
        """Return the processors that died, each once, after its last report was read."""
        for died in self._supervisor.poll():
            if self._starting:
                what = f"{died.child} {died.how} before it was ready"
                raise StartupError(f"{what}; {died.explanation}")
            self._died(self._links[int(died.child.spec.rank)], str(died))
        for link in self._links:
            if link.trouble and not link.death:
                self._kill(link)
        dead = [link for link in self._links if link.exhausted and not link.closed]
        for link in dead:
            link.close(0.0)
        given_up, self._given_up = self._given_up, []
        return given_up + [Death(link.index, link.ranks, link.death) for link in dead]

    def _died(self, link: ProcessorLink, reason: str) -> None:
        """Let the next process go on from the journal, if there is one."""
        journal = self._pool.journal(link.index)
        again = link.going_on
        link.died(reason)
        if journal is None or link.trouble or link.closed:
            return  # it is replaced when its last report is read
        if again:  # what killed this process too may be in the journal
            journal.clear()
        link.go_on()
        try:
            self._pool.go_on(link.index, "its requests go on in the next process")
        except ProcessorFailed as failure:
            self._given_up += self._give_up(link, failure)

    def _give_up(self, link: ProcessorLink, failure: ProcessorFailed) -> list[Death]:
        if not link.going_on or link.closed:
            return []
        link.close(0.0)
        return [Death(link.index, link.ranks, link.death, failure=failure)]

    def _kill(self, link: ProcessorLink) -> None:
        """Kill a processor whose reports cannot be read. It is then replaced like a dead one."""
        if self._pool.inline:
            raise LaneError(f"processor {link.index}: {link.trouble}")
        self._pool.children[link.index].kill(link.trouble)

    def replace(self, death: Death, also: str) -> None:
        """Restart a dead processor. Log its death with `also`.

        Raises ProcessorFailed if the policies do not allow it.
        """
        self._pool.start_again(death.processor, also)

    def take_started(self) -> list[ProcessorLink]:
        """Use the links to the processors that were started again. Return each once.

        Raises ProcessorFailed if one cannot be started and no further attempt is allowed.
        """
        try:
            started = self._pool.take_started()
        except ProcessorFailed as failure:
            for link in self._links:
                self._given_up += self._give_up(link, failure)
            raise
        for link in started:
            self._links[link.index] = link
        return started

    def begin_again(self, death: Death, commands: Sequence[Message]) -> None:
        """Let a process without requests begin with these commands."""
        self._links[death.processor].begin_again(commands)

    def close(self, end: float) -> None:
        """Tell all processors to finish by the time `end`."""
        for link in self._links:
            # An inline processor runs in this thread and cannot answer, so nothing is waited for.
            link.close(0.0 if self._pool.inline else max(0.0, end - self._clock()))
        self._pool.close(end)
