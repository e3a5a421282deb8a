"""The processes and the directory of a bench run that a fault may choose."""

from __future__ import annotations

from pathlib import Path

from tokenpipe.pipeline import Pipeline

from .bench_processes import BenchProcesses, living


class BenchVictims:
    """The living processes of a run, read anew for each fault."""

    def __init__(self, pipe: Pipeline, processes: BenchProcesses) -> None:
        self._pipe = pipe
        self._processes = processes

    @property
    def workers(self) -> list[int]:
        """Process ids of the workers."""
        return [child.pid for child in living(self._processes.workers)]

    @property
    def processors(self) -> list[int]:
        """Process ids of the processors."""
        return self._pipe.processor_pids

    @property
    def clients(self) -> list[int]:
        """Process ids of the clients."""
        return [child.pid for child in living(self._processes.clients)]

    @property
    def directory(self) -> Path:
        """The instance's directory."""
        return Path(self._pipe.endpoint)
