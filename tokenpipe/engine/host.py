"""Run the pipeline, the reference scheduler and the workers of a topology until told to stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from tokenpipe.errors import StartupError, TokenpipeError
from tokenpipe.events import Event, Finished, Mismatch, RankLost, RankUp, Rescheduled
from tokenpipe.instance import HEALTH_S, Health, HealthWriter, close_at_exit
from tokenpipe.logs import RateLimit
from tokenpipe.notify import Notifier
from tokenpipe.pipeline import Pipeline
from tokenpipe.supervisor import Child, ChildSpec, KeptChildren, Supervisor
from tokenpipe.topology import Topology
from tokenpipe.types import ErrorCode, RescheduleReason
from tokenpipe.worker import EngineSpec

from .engine_loop import EngineLoop
from .model_cards import ModelCards
from .scheduler import Scheduler

TURN_S = 0.2
_log = logging.getLogger("tokenpipe.engine")


class WorkerFailed(TokenpipeError):
    """A worker died and is not started again. Names it, how and why it died, and its log's end."""


class EngineHost:
    """All processes of a topology except its API servers. Use it in one thread.

    `serve()` returns once `stopping` is set. It raises `WorkerFailed` or `ProcessorFailed` if the
    policy does not start a dead process again.
    """

    def __init__(self, topology: Topology, spec: EngineSpec, notifier: Notifier) -> None:
        """Start the processors. Raises what `Pipeline` raises."""
        self.topology = topology
        self.stopping = False
        self._spec = spec
        self._notifier = notifier
        notifier.phase("starting its processors")
        self.pipe = Pipeline(topology, model_card=None)
        self._workers = Supervisor(self.pipe.log_dir, keep_logs=topology.log_dir is not None)
        self._kept = KeptChildren(self._workers, topology, WorkerFailed, _log)
        self._health = HealthWriter(Path(self.pipe.endpoint))
        ranks = [f"{dp}.{tp}" for dp, tp in topology.workers]
        self._model_cards = ModelCards(ranks, self.pipe.set_model_card)
        self._up: set[int] = set()
        self._rescheduled = 0  # requests of a rank, before the event that the rank is lost
        self._watch_at = 0.0
        self._limit = RateLimit(10.0, time.monotonic)
        lanes = {dp: self.pipe.step_lane(dp) for dp in range(topology.data_parallel_size)}
        self.scheduler = Scheduler(
            self.pipe,
            lanes,
            slots=topology.slots_per_rank,
            patience_s=topology.recover_s,
            lost_rank=topology.policies.lost_rank,
            max_queued=topology.max_queued_requests,
        )
        lockstep = topology.tensor_parallel_size > 1
        self._loop = EngineLoop(
            self.pipe, lanes, self.scheduler, lockstep=lockstep, on_events=self._note
        )
        self.pipe.watch(self._workers.fileno())

    @property
    def endpoint(self) -> str:
        """The directory of the instance."""
        return self.pipe.endpoint

    def start(self, deadline: float) -> None:
        """Start all workers and wait until all ranks are up. StartupError names who is late."""
        pending = {}
        for dp, tp in self.topology.workers:
            child = self._kept.start(self._worker(dp, tp))
            pending[child] = lambda child=child, dp=dp: self._missing(child, dp)
        left = max(0.0, deadline - time.monotonic())
        self._notifier.phase(f"waiting for {len(pending)} worker(s)")

        def pump(seconds: float) -> None:
            self._turn(seconds)
            late = ", ".join(str(child) for child in pending if child.missing())
            self._notifier.phase(f"waiting for {late or 'the last rank'}")

        self._workers.wait_ready(pending, left, pump)
        self._model_cards.check()

    def _missing(self, child: Child, dp: int) -> str | None:
        phase = child.missing()
        return phase or (None if dp in self._up else "waiting for its rank to come up")

    def serve(self) -> None:
        """Schedule until `stopping` is set."""
        while not self.stopping:
            self._turn(TURN_S)
            for died in self._workers.poll():
                self._kept.died(died)
                self._kept.start_again(died.child.spec)
            self._kept.retry()
            self._look_around()

    def close(self) -> None:
        """Let the workers end, then stop all other processes."""
        deadline = time.monotonic() + self.topology.timeouts.close_s
        self._loop.end_workers()
        while self._workers.living and time.monotonic() < deadline:
            self._loop.take_events(0.05)
            self._workers.poll()
        self.abandon(self.topology.timeouts.close_s)

    def abandon(self, timeout_s: float = 1.0) -> None:
        """Stop all processes at once. Rows that the workers still have are lost."""
        self._workers.close(0.0)
        try:
            self._health.close()
        except OSError as error:  # the processors must be stopped all the same
            _log.error("health cannot be removed from %s: %s", self.endpoint, error.strerror)
        self.pipe.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        close_at_exit(self.close if error is None else self.abandon, error)

    # --- a turn ---

    def _turn(self, timeout_s: float) -> None:
        self._loop.turn(timeout_s)
        self._notifier.watchdog()

    def _note(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case RankUp(dp_rank):
                    self._up.add(dp_rank)
                    self._hear_model_cards()  # before the rank gets its first request
                    _log.info("rank %d is up", dp_rank, extra={"fields": {"dp": dp_rank}})
                case Rescheduled(reason=RescheduleReason.RANK_LOST | RescheduleReason.RANK_CLOSED):
                    self._rescheduled += 1  # these events come before RankLost
                case Finished(request, error=error, error_code=ErrorCode.CRASHES):
                    _log.error("request %r ends: %s", request.external_id, error)
                case RankLost(dp_rank, reason):
                    self._up.discard(dp_rank)
                    self._watch_at = 0.0  # so that health is written in this turn
                    self._rank_lost(dp_rank, reason)
                case Mismatch():
                    self._limit.log(_log, logging.ERROR, "mismatch", f"ranks differ: {event}")

    def _rank_lost(self, dp_rank: int, reason: str) -> None:
        follows = {"end": "end", "wait": f"wait for rank {dp_rank}"}.get(
            self.topology.policies.lost_rank,
            "go to another rank" if self._up else "wait for a rank",
        )
        what = f"rank {dp_rank} is lost: {reason}; {self._rescheduled} request(s) {follows}"
        self._rescheduled = 0
        _log.warning("%s", what, extra={"fields": {"dp": dp_rank}})

    def _hear_model_cards(self) -> None:
        try:
            self._model_cards.update(self._workers.facts())
        except OSError as error:
            said = f"the model card cannot be written to {self.endpoint}: {error.strerror}"
            self._limit.log(_log, logging.ERROR, "model card", f"{said}; it is tried again")

    # --- workers ---

    def _worker(self, dp: int, tp: int) -> ChildSpec:
        args = ["--endpoint", self.endpoint, "--dp", str(dp), "--tp", str(tp)]
        args += ["--engine", self._spec.target]
        env = self._spec.environment
        return ChildSpec("worker", f"{dp}.{tp}", "tokenpipe.worker", tuple(args), env)

    def _look_around(self) -> None:
        """Check which processes are late, silent or down, and write the health."""
        now = time.monotonic()
        if now < self._watch_at:
            return
        self._watch_at = now + HEALTH_S
        self._hear_model_cards()
        self._kept.look()
        problems = {**self._kept.problems, **self.pipe.problems()}
        for dp in set(range(self.topology.data_parallel_size)) - self._up:
            problems[f"rank {dp}"] = "is down"
        scheduler = self.scheduler
        self._write(Health(problems, scheduler.ranks_up, scheduler.running, scheduler.waiting), now)

    def _write(self, health: Health, now: float) -> None:
        """Write the health. A failure ends no request, as on a full disk."""
        try:
            self._health.write(health, now)
        except OSError as error:
            said = f"health cannot be written to {self.endpoint}: {error.strerror}"
            self._limit.log(_log, logging.ERROR, "health", f"{said}; requests are served on")


def start_host(
    topology: Topology, spec: EngineSpec, notifier: Notifier, deadline: float
) -> EngineHost:
    """Make a host and start its workers. If one does not start, all processes are stopped."""
    host = EngineHost(topology, spec, notifier)
    try:
        host.start(deadline)
    except BaseException as error:
        host.abandon()
        if isinstance(error, TokenpipeError) and not isinstance(error, StartupError):
            raise StartupError(f"{type(error).__name__}: {error}") from error
        raise
    return host
