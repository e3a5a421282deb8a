"""An engine's turn: wait, read, handle, send; in lockstep no plan before the last one is read."""

from __future__ import annotations

from tests.engine.pipe_model import Model
from tokenpipe.engine import EngineLoop, Scheduler
from tokenpipe.events import Event
from tokenpipe.wire import StepPlan


class Lane:
    """A step lane whose worker reads when the test says so."""

    def __init__(self) -> None:
        self.plans: list[StepPlan] = []
        self.unread = 0
        self.ended = False

    def send(self, plan: StepPlan) -> None:
        self.plans.append(plan)
        self.unread += 1

    def end(self) -> None:
        self.ended = True


class Pipe(Model):
    """The model, with the two calls of an engine's loop."""

    def __init__(self, ranks: int) -> None:
        super().__init__(ranks)
        self.waits: list[float] = []

    def wait(self, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        return True

    def poll(self) -> list[Event]:
        events = list(self.events)
        self.events.clear()
        return events


def made(**options: bool | int) -> tuple[Pipe, dict[int, Lane], EngineLoop]:
    pipe, lanes = Pipe(2), {0: Lane(), 1: Lane()}
    scheduler = Scheduler(pipe, lanes, slots=4)
    return pipe, lanes, EngineLoop(pipe, lanes, scheduler, **options)  # type: ignore[arg-type]


def test_a_turn_waits_reads_and_sends_what_follows() -> None:
    pipe, lanes, loop = made()
    pipe.submit(1, 10)
    names = [type(event).__name__ for event in loop.turn(0.5)]
    assert names == ["RankUp", "RankUp", "Submitted"] and pipe.waits == [0.5]
    assert [len(plan.binds) for lane in lanes.values() for plan in lane.plans] == [1]
    assert loop.turn(0.5) == []
    assert sum(len(lane.plans) for lane in lanes.values()) == 1  # a worker runs on by itself


def test_what_a_turn_read_is_told_before_anything_is_sent() -> None:
    """So a host knows what a new rank accepts before the rank gets a request."""
    pipe, lanes = Pipe(2), {0: Lane(), 1: Lane()}
    told: list[tuple[int, int]] = []

    def on_events(events: list[Event]) -> None:
        told.append((len(events), sum(len(lane.plans) for lane in lanes.values())))

    loop = EngineLoop(pipe, lanes, Scheduler(pipe, lanes, slots=4), on_events=on_events)
    pipe.submit(1, 10)
    loop.turn(0.5)
    loop.take_events(0.5)
    assert told == [(3, 0)] and sum(len(lane.plans) for lane in lanes.values()) == 1


def test_take_events_sends_nothing() -> None:
    pipe, lanes, loop = made()
    pipe.submit(1, 10)
    assert len(loop.take_events(0.5)) == 3
    assert not any(lane.plans for lane in lanes.values())


def test_in_lockstep_no_plan_goes_out_before_each_rank_has_read_its_last_one() -> None:
    pipe, lanes, loop = made(lockstep=True, grant=6)
    loop.turn(0.5)
    assert pipe.waits == [0.5] and not lanes[0].plans  # nothing runs, so there is nothing to allow
    pipe.submit(1, 10)
    loop.turn(0.5)
    assert [plan.steps for lane in lanes.values() for plan in lane.plans] == [6, 6]
    lanes[0].unread = 0
    for _ in range(5):
        loop.turn(0.5)
    assert [len(lane.plans) for lane in lanes.values()] == [1, 1]
    lanes[1].unread = 0
    loop.turn(0.5)
    assert [len(lane.plans) for lane in lanes.values()] == [2, 2]
    assert max(pipe.waits[2:]) < 0.01  # no event tells that a plan was read


def test_a_rank_that_is_down_keeps_no_other_waiting() -> None:
    pipe, lanes, loop = made(lockstep=True)
    loop.turn(0.5)
    pipe.submit(1, 100)
    pipe.submit(2, 100)
    loop.turn(0.5)
    pipe.lose(pipe.ranks[1])
    lanes[0].unread = 0  # and rank 1 reads nothing any more
    loop.turn(0.5)
    assert len(lanes[0].plans) == 2


def test_workers_are_told_that_no_plan_follows() -> None:
    _, lanes, loop = made()
    loop.end_workers()
    assert all(lane.ended for lane in lanes.values())
