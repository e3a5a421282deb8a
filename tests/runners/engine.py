"""A whole engine in one process: a Pipeline, a worker thread per rank with a real runner, a client.

Tokens are the probe's, so each stream is known beforehand, preempted or not.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tests.runners.rig import LoggedModel
from tokenpipe import (
    Client,
    Finished,
    Pipeline,
    Publisher,
    RankUp,
    Released,
    Request,
    RequestOutput,
    Rescheduled,
    SamplingParams,
    StepBind,
    StepLane,
    StepLaneReader,
    StepPlan,
    Submitted,
    Topology,
)
from tokenpipe.events import Event
from tokenpipe.runners import ModelRunner, Row, Sampled, runner_for
from tokenpipe.runners.probe import ProbeModel
from tokenpipe.worker import WorkerLoop


class Counted:
    """A worker's end of its step lane that counts the plans which its worker is done with."""

    def __init__(self, lane: StepLaneReader) -> None:
        self._lane = lane
        self.done = self._given = 0

    @property
    def ended(self) -> bool:
        return self._lane.ended

    def recv(self, timeout_s: float = 0.0) -> list[StepPlan]:
        self.done = self._given
        plans = self._lane.recv(timeout_s)
        self._given += len(plans)
        return plans


Make = Callable[[int, int], ModelRunner]  # of a DP rank and a TP rank


class WorkerThread(threading.Thread):
    """One rank: takes plans, runs its runner; keeps what it died of."""

    def __init__(self, endpoint: str, dp: int, tp: int, make: Make):
        super().__init__(name=f"worker {dp}.{tp}")
        self.endpoint, self.dp, self.tp, self.make = endpoint, dp, tp, make
        self.error: BaseException | None = None
        self.runner: ModelRunner | None = None
        self.lane: Counted | None = None
        self.start()

    def run(self) -> None:
        lane = StepLane.worker(self.endpoint, self.dp, self.tp)
        try:
            with Publisher(self.endpoint, self.dp, self.tp) as pub:
                self.runner = self.make(self.dp, self.tp)
                self.lane = Counted(lane)
                WorkerLoop(self.lane, pub, self.runner, lockstep=True).run()
        except BaseException as error:
            self.error = error
        finally:
            lane.close()


class Engine:
    """Drives a Pipeline in lockstep: each turn every rank gets one plan, which is one step."""

    def __init__(
        self,
        runtime_dir: Path,
        make: Make | None = None,
        *,
        depth: int = 1,
        **topology: Any,
    ) -> None:
        self.pipe = Pipeline(
            Topology(runtime_dir=runtime_dir, processors={"mode": "inline"}, **topology)
        )
        make = make or (lambda dp, tp: runner_for("cpu")(LoggedModel([]), depth=depth))
        self.dp = self.pipe.topology.data_parallel_size
        lanes = [self.pipe.step_lane(dp) for dp in range(self.dp)]
        self.lanes = lanes
        self.workers = [
            WorkerThread(self.pipe.endpoint, dp, tp, make) for dp, tp in self.pipe.topology.workers
        ]
        self.events: list[Event] = []
        self.plans = 0
        self.plans_of = [0] * self.dp
        self.asking: list[Asking] = []
        self.until(lambda: len(self.seen(RankUp)) == self.dp)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:  # TP ranks may lag behind, and a rank that is gone takes its plans along
            self.until(lambda: all(self._is_done(worker) for worker in self.workers))
        for lane in self.lanes:
            lane.end()
        everybody: list[threading.Thread] = [*self.workers, *self.asking]
        deadline = time.monotonic() + 10
        while any(thread.is_alive() for thread in everybody) and time.monotonic() < deadline:
            self.pipe.wait(0.02)
            self.pipe.poll()
        self.pipe.close()
        for thread in everybody:
            thread.join(5)
        if kind is None:
            assert all(worker.error is None for worker in self.workers), self.workers[0].error

    def _is_done(self, worker: WorkerThread) -> bool:
        sent = self.plans_of[worker.dp]
        return not worker.is_alive() or bool(worker.lane and worker.lane.done >= sent)

    def turn(self) -> list[Event]:
        """Read what happened."""
        self.pipe.wait(0.01)
        events = self.pipe.poll()
        self.events += events
        return events

    def until(self, fact: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20
        while not fact():
            assert time.monotonic() < deadline, self.events
            self.turn()

    def seen(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def ask(self, prompts: Sequence[tuple[int, ...]], params: SamplingParams) -> list[Asking]:
        """Submit a request for each prompt, from a client in a thread of its own."""
        new = [Asking(self.pipe.endpoint, prompt, params) for prompt in prompts]
        self.asking += new
        self.until(lambda: len(self.seen(Submitted)) >= len(self.asking))
        return new

    def requests(self) -> list[Request]:
        return [event.request for event in self.seen(Submitted)]

    def plan(self, dp: int, binds: Sequence[StepBind] = (), frees: Sequence[int] = ()) -> None:
        """Run one step of a rank, with these changes."""
        self.plans += 1
        self.plans_of[dp] += 1
        self.lanes[dp].send(StepPlan(self.plans, tuple(binds), tuple(frees), steps=1))


class Asking(threading.Thread):
    """A client that asks for one request and keeps its outputs."""

    def __init__(self, endpoint: str, prompt: tuple[int, ...], params: SamplingParams) -> None:
        super().__init__()
        self.endpoint, self.prompt, self.params = endpoint, prompt, params
        self.outputs: list[RequestOutput] = []
        self.start()

    def run(self) -> None:
        with Client(self.endpoint) as client:
            self.outputs += client.generate(list(self.prompt), self.params, request_id="same")

    @property
    def tokens(self) -> list[int]:
        return [token for output in self.outputs for token in output.token_ids]


class Shuffler:
    """Schedules with ill will: preempts whom it likes when it likes, and binds wherever."""

    def __init__(self, engine: Engine, seed: int, chance: float, slots: int = 4) -> None:
        self.engine = engine
        self.random = random.Random(seed)
        self.chance = chance
        self.free = [(dp, slot) for dp in range(engine.dp) for slot in range(slots)]
        self.waiting: list[tuple[Request, tuple[int, ...]]] = []
        self.running: dict[int, Request] = {}  # by handle, until preempted or over
        self.places: dict[int, tuple[int, int]] = {}  # by handle, until released
        self.frees: dict[int, list[int]] = {dp: [] for dp in range(engine.dp)}
        self.preempted = 0
        self.visited: dict[int, list[tuple[int, int]]] = {}  # places by request, in order
        self.ended = 0

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Submitted(request):
                    self.waiting.append((request, ()))
                case Rescheduled(request, handle, _, ids):
                    self.running.pop(handle, None)
                    self.waiting.append((request, tuple(ids)))
                case Finished(_, handle):
                    self.ended += 1
                    if self.running.pop(handle, None) is not None:
                        self.frees[self.places[handle][0]].append(handle)
                case Released(_, handle):
                    self.free.append(self.places.pop(handle))

    def turn(self) -> None:
        self.take(self.engine.turn())
        binds: dict[int, list[StepBind]] = {dp: [] for dp in self.frees}
        for dp in self.frees:
            with self.engine.pipe.commands(dp) as commands:
                for handle in [h for h in self.running if self.places[h][0] == dp]:
                    if self.random.random() < self.chance:
                        commands.preempt(handle)
                        del self.running[handle]
                        self.frees[dp].append(handle)
                        self.preempted += 1
                while (here := [place for place in self.free if place[0] == dp]) and (
                    mine := [
                        i for i, (request, _) in enumerate(self.waiting) if self.goes(request, dp)
                    ]
                ):
                    request, ids = self.waiting.pop(self.random.choice(mine))
                    place = self.random.choice(here)
                    self.free.remove(place)
                    handle = commands.bind(request, place[1])
                    self.running[handle] = request
                    self.places[handle] = place
                    self.visited.setdefault(request.internal_id, []).append(place)
                    binds[dp].append(
                        StepBind(
                            handle,
                            request.internal_id,
                            len(ids),
                            request.prompt_token_ids,
                            ids,
                            request.params.max_tokens,
                            params=request.params,
                        )
                    )
        for dp, frees in self.frees.items():
            self.engine.plan(dp, binds[dp], frees)
            self.frees[dp] = []

    def goes(self, request: Request, dp: int) -> bool:
        """Whether a request may go to a rank: to another one and back to the same, by turns."""
        been = self.visited.get(request.internal_id)
        if not been or not any(place[0] != dp for place in self.free):
            return True
        return (been[-1][0] == dp) == (len(been) % 2 == 0)

    def moved(self) -> tuple[bool, bool]:
        """Whether some request went on in another slot of its rank, and some in another rank."""
        pairs = [pair for places in self.visited.values() for pair in pairwise(places)]
        slot = any(one[0] == two[0] and one[1] != two[1] for one, two in pairs)
        return slot, any(one[0] != two[0] for one, two in pairs)


class SpeculativeModel(ProbeModel):
    """The probe's tokens in rows of 1 to 6, however many a step happens to accept."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)

    def prefill(self, rows: Sequence[Row]) -> Sampled:
        super().prefill(rows)
        for row in rows:
            row.state = (*row.prompt_token_ids, *row.output_token_ids)
        return self._accepted(rows)

    def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Sampled:
        assert last is None and lengths is None
        return self._accepted(rows)

    def _accepted(self, rows: Sequence[Row]) -> Sampled:
        counts = np.array([self.random.randint(1, 6) for _ in rows])
        tokens = np.full((len(rows), 6), -1)
        for i, row in enumerate(rows):
            new = self.expected(row.state, int(counts[i]))
            tokens[i, : counts[i]] = new
            row.state += tuple(new)
        return Sampled(tokens, counts)
