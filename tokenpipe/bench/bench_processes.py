"""Start the bench's workers and clients, notice when one of them fails, read their reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenpipe.errors import TokenpipeError
from tokenpipe.supervisor import Child, ChildSpec, Supervisor

from .arguments import Arguments
from .client_results import PlannedRequest


class BenchFailed(TokenpipeError):
    """A process of the bench ended too early or too late. The message has its last log lines."""


class BenchProcesses:
    """The workers and the clients of one run, as children of `supervisor`."""

    def __init__(self, supervisor: Supervisor, arguments: Arguments) -> None:
        self.workers: list[Child] = []
        self.clients: list[Child] = []
        self.workers_may_end = arguments.options.discard  # they end by themselves there
        self._supervisor = supervisor
        self._arguments = arguments
        self._files = arguments.files
        self._chaos = arguments.options.chaos is not None

    def start_workers(self, ranks: Iterable[tuple[int, int]]) -> None:
        """Start one worker for each (DP rank, TP rank)."""
        for dp, tp in ranks:
            words = self._arguments.worker(dp, tp)
            self.workers.append(self._start("bench.worker", f"{dp}.{tp}", words))

    def start_clients(self, shares: Iterable[list[PlannedRequest]]) -> None:
        """Start one client for each share of the requests."""
        for index, share in enumerate(shares):
            words = self._arguments.client(index, share)
            self.clients.append(self._start("bench.client", str(index), words))

    def leaders(self) -> list[Child]:
        """Return the workers of TP rank 0."""
        return [child for child in self.workers if child.spec.rank.endswith(".0")]

    def check(self) -> None:
        """Raise BenchFailed if a process has failed, or has ended too early.

        In a run with chaos, a dead worker is started again instead.
        """
        for died in self._supervisor.poll():
            if self._chaos and died.child in self.workers and not self.workers_may_end:
                self._start_again(died.child)
                continue
            early = not self._may_end(died.child)
            if died.returncode != 0 or early:
                when = ", too early" if early else ""
                raise BenchFailed(f"{died.child} {died.how}{when}; {died.explanation}")

    def worker_reports(self) -> list[dict[str, Any]]:
        """Return the report of each worker. A worker that was killed has none."""
        files, ranks = self._files, [child.spec.rank for child in self.workers]
        return [
            files.read_report("worker", rank)
            for rank in ranks
            if not self._chaos or files.report("worker", rank).exists()
        ]

    def client_reports(self) -> list[dict[str, Any]]:
        """Return the report of each client."""
        return [self._files.read_report("client", child.spec.rank) for child in self.clients]

    def _start(self, role: str, rank: str, words: list[str]) -> Child:
        return self._supervisor.start(ChildSpec(role, rank, f"tokenpipe.{role}", tuple(words)))

    def _start_again(self, dead: Child) -> None:
        at = self.workers.index(dead)
        self.workers[at] = self._supervisor.start(dead.spec)

    def _may_end(self, child: Child) -> bool:
        if child in self.clients:
            return self._files.report("client", child.spec.rank).exists()
        return self.workers_may_end


def living(children: Iterable[Child]) -> list[Child]:
    """Return the children that have not ended."""
    return [child for child in children if child.died is None]
