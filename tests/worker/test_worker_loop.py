"""The loop of a worker: calls in the order of the plans; each row and each drained handle once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.worker.loop_fakes import FakeLane, FakePublisher, bind
from tokenpipe.errors import LaneClosed, LaneError, LaneFull, LaneLost, RequestRefused
from tokenpipe.notify import Notifier
from tokenpipe.types import RowStatus
from tokenpipe.wire import StepPlan
from tokenpipe.worker import StepRows, WorkerLoop

REFUSED_KEY = 13


class Counting:
    """Gives one token a row: the number of the step. Refuses the key 13."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.running: list[int] = []
        self.done = 0

    def admit(self, binding: Any) -> None:
        if binding.key == REFUSED_KEY:
            raise RequestRefused("the prompt is too long")
        self.calls.append(f"admit {binding.handle}")
        self.running.append(binding.handle)

    def step(self) -> StepRows | None:
        self.calls.append("step")
        self.done += 1
        n = len(self.running)
        return StepRows(np.array(self.running, np.int64), np.full(n, self.done, np.int32))

    def free(self, handle: int) -> bool | None:
        self.calls.append(f"free {handle}")
        self.running.remove(handle)
        return None


class Overlapping(Counting):
    """Launches a step and returns the rows of the one before it."""

    def __init__(self) -> None:
        super().__init__()
        self.in_flight: list[StepRows] = []

    def step(self) -> StepRows | None:
        if not (self.running or self.in_flight):
            return None
        launched = super().step()
        if self.running and launched is not None:
            launched.drained = []
            self.in_flight.append(launched)
            return self.in_flight.pop(0) if len(self.in_flight) > 1 else StepRows([], [])
        return self.in_flight.pop(0)

    def free(self, handle: int) -> bool | None:
        super().free(handle)
        if self.in_flight:
            self.in_flight[-1].drained.append(handle)  # type: ignore[attr-defined]
        return bool(self.in_flight)


def run(
    lane: FakeLane, *errors: LaneError | None, executor: Counting | None = None, **options: Any
) -> tuple[Counting, FakePublisher]:
    executor, pub = executor or Counting(), FakePublisher(*errors)
    WorkerLoop(lane, pub, executor, **options).run()
    return executor, pub


def seen(pub: FakePublisher) -> list[tuple[list[int], list[int], list[int]]]:
    """Return handles, tokens and drained handles of each frame."""
    return [(frame.handles, frame.tokens, frame.drained) for frame in pub.frames]


def test_steps_follow_one_another_and_a_freed_handle_is_drained() -> None:
    lane = FakeLane([StepPlan(1, (bind(5), bind(6)))], [], [StepPlan(2, frees=(5,))], [])
    executor, pub = run(lane)
    assert executor.calls[:3] == ["admit 5", "admit 6", "step"]
    assert seen(pub)[:3] == [([5, 6], [1, 1], []), ([5, 6], [2, 2], []), ([6], [3], [5])]
    assert [frame.step for frame in pub.frames] == list(range(1, 1 + len(pub.frames)))


def test_freed_and_bound_in_one_plan_is_drained_and_never_admitted() -> None:
    executor, pub = run(FakeLane([StepPlan(1, (bind(5),), (5, 77))]))
    assert executor.calls == [] and seen(pub) == [([], [], [5, 77])]


def test_plain_rows_go_out_as_other_rows_do() -> None:
    class Plain(Counting):
        def step(self) -> StepRows | None:
            rows = super().step()
            assert rows is not None
            return StepRows(rows.handles, rows.tokens, plain=True)

    def plans() -> FakeLane:
        binds = (bind(5), bind(6), bind(7, REFUSED_KEY))
        return FakeLane([StepPlan(1, binds)], [], [StepPlan(2, frees=(5,))], [])

    errors = (None, None, LaneFull("full"), None, LaneFull("full"))
    plain, other = run(plans(), *errors, executor=Plain()), run(plans(), *errors)
    assert plain[1].frames == other[1].frames and len(other[1].frames) > 4
    assert plain[1].log == other[1].log and plain[0].calls == other[0].calls


def test_a_refused_request_ends_with_its_reason_and_the_others_go_on() -> None:
    lane = FakeLane([StepPlan(1, (bind(5), bind(6, REFUSED_KEY)))], [StepPlan(2, frees=(6,))])
    executor, pub = run(lane)
    assert seen(pub)[:3] == [([6], [], []), ([5], [1], []), ([5], [2], [6])]
    assert pub.frames[0].status == [RowStatus.REFUSED] and pub.frames[1].status == []
    assert pub.frames[0].extras[0].error == "the prompt is too long"
    assert "free 6" not in executor.calls


def test_only_refused_requests_are_one_frame() -> None:
    executor, pub = run(FakeLane([StepPlan(1, (bind(6, REFUSED_KEY),))], []))
    assert seen(pub) == [([6], [], [])] and executor.calls == []


def test_an_idle_worker_polls_and_never_steps() -> None:
    lane = FakeLane([], [], [])
    executor, pub = run(lane)
    assert executor.calls == [] and set(pub.log) == {"poll"} and len(pub.log) >= 3
    assert set(lane.waits) == {0.1}  # as the publisher asks


@pytest.mark.parametrize("notifier", [None, Notifier(None)])
def test_an_idle_worker_waits_for_plans_and_gives_signs_of_life(notifier: Notifier | None) -> None:
    lane, pub = FakeLane([]), FakePublisher()
    pub.poll_within_s = 60.0
    WorkerLoop(lane, pub, Counting(), notifier=notifier).run()
    assert set(lane.waits) == {0.25 if notifier else 0.5}


def test_a_worker_with_rows_waits_for_nobody() -> None:
    lane = FakeLane([StepPlan(1, (bind(5),))], [], [])
    run(lane)
    assert lane.waits[0] > 0 and set(lane.waits[1:]) == {0.0}


def test_an_executor_with_nothing_to_run_waits_for_the_next_plan() -> None:
    class Silent(Counting):
        def step(self) -> StepRows | None:
            return super().step() if self.done < 2 else None

    plans = [[StepPlan(1, (bind(5),))], [], [], [], [StepPlan(2, (bind(6),), (5,))]]
    lane = FakeLane(*plans)
    executor, pub = run(lane, executor=Silent())
    assert executor.calls.count("step") == 2
    assert [wait > 0 for wait in lane.waits] == [True, False, False, True, True, True]
    assert seen(pub)[2:] == [([], [], [5])]  # without a row to go with


def test_an_executor_without_rows_yet_is_called_again_at_once() -> None:
    class Prefilling(Counting):
        def step(self) -> StepRows | None:
            rows = super().step()
            return rows if self.done == 3 else StepRows([], [])

    lane = FakeLane([StepPlan(1, (bind(5),))], [], [])
    _, pub = run(lane, executor=Prefilling())
    assert seen(pub) == [([5], [3], [])] and set(lane.waits[1:]) == {0.0}
    assert pub.log[:3] == ["poll", "poll", "publish 1"]


def test_reset_drops_all_and_names_nothing() -> None:
    plans = [StepPlan(1, (bind(5),), (9,)), StepPlan(0, (bind(6),), reset=True)]
    executor, pub = run(FakeLane(plans))
    assert executor.calls[:3] == ["admit 5", "free 5", "admit 6"]
    assert seen(pub)[0] == ([6], [1], [])


def test_a_dead_processor_costs_the_batch_and_not_the_worker() -> None:
    lane = FakeLane([StepPlan(1, (bind(5),))], [StepPlan(2, (bind(6),))])
    executor, pub = run(lane, LaneLost("the processor died"))
    assert executor.calls[:5] == ["admit 5", "step", "free 5", "admit 6", "step"]
    assert seen(pub)[0] == ([6], [2], [])


def test_a_full_lane_holds_the_step_back_and_no_forward_runs_before() -> None:
    lane = FakeLane([StepPlan(1, (bind(5),))], [StepPlan(2, frees=(5,))], [])
    executor, pub = run(lane, None, LaneFull("full"), LaneFull("full"))
    assert executor.calls == ["admit 5", "step", "free 5"]
    assert seen(pub) == [([5], [1], []), ([], [], [5])]
    assert pub.log[:6] == ["publish 1", "publish 2", "wait", "publish 2", "wait", "publish 2"]


def test_stop_ends_the_loop() -> None:
    class Stops(Counting):
        def step(self) -> StepRows | None:
            loop.stop()
            return super().step()

    executor, pub = Stops(), FakePublisher()
    loop = WorkerLoop(FakeLane([StepPlan(1, (bind(5),))], [], []), pub, executor)
    loop.run()
    assert loop.stopped and seen(pub) == [([5], [1], [])]


def test_an_executor_that_breaks_is_reported_and_ends_the_loop() -> None:
    class Broken(Counting):
        def step(self) -> StepRows | None:
            raise RuntimeError("out of memory")

    pub = FakePublisher()
    loop = WorkerLoop(FakeLane([StepPlan(1, (bind(5),))]), pub, Broken())
    with pytest.raises(RuntimeError, match="out of memory"):
        loop.run()
    assert pub.failures == ["out of memory"]


def test_a_failure_that_cannot_be_reported_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Counting):
        def step(self) -> StepRows | None:
            raise RuntimeError("out of memory")

    class Closed(FakePublisher):
        def fail(self, error: str | BaseException) -> None:
            raise LaneClosed("it is closed")

    with pytest.raises(RuntimeError, match="out of memory"):
        WorkerLoop(FakeLane([StepPlan(1, (bind(5),))]), Closed(), Broken()).run()
    assert [record.message for record in caplog.records] == [
        "the failure could not be reported to the processor: it is closed"
    ]


def test_a_dead_engine_ends_the_loop_and_is_no_failure_of_the_rank() -> None:
    class Dead(FakeLane):
        def recv(self, timeout_s: float) -> list[StepPlan]:
            raise LaneLost("the engine died")

    pub = FakePublisher()
    with pytest.raises(LaneLost, match="the engine died"):
        WorkerLoop(Dead(), pub, Counting()).run()
    assert pub.failures == []


class TestLockstep:
    """Ranks of a tensor-parallel group: the same calls, and the same frames."""

    def test_each_plan_runs_what_it_allows_before_the_next(self) -> None:
        plans = [StepPlan(1, (bind(5),), steps=2), StepPlan(2, (bind(6),), steps=1)]
        executor, pub = run(FakeLane(plans, []), lockstep=True)
        assert executor.calls == ["admit 5", "step", "step", "admit 6", "step"]
        assert [frame.handles for frame in pub.frames] == [[5], [5], [5, 6]]

    def test_a_plan_without_steps_changes_the_batch_and_runs_nothing(self) -> None:
        plans = [StepPlan(1, (bind(5),)), StepPlan(2, frees=(5, 8))]
        executor, pub = run(FakeLane(plans, [], []), lockstep=True)
        assert executor.calls == ["admit 5", "free 5"] and seen(pub) == [([], [], [5, 8])]

    def test_frames_are_the_same_however_the_plans_come(self) -> None:
        plans = [
            StepPlan(1, (bind(5), bind(6)), steps=2),
            StepPlan(2, frees=(5,)),
            StepPlan(3, steps=2),
            StepPlan(4, (bind(7, REFUSED_KEY),), (6, 9), steps=3),
            StepPlan(5, (bind(8),), steps=3),
        ]
        together, one_by_one = FakeLane(plans), FakeLane(*([plan] for plan in plans), [], [])
        for make in (Counting, Overlapping):
            runs = [
                run(lane, executor=make(), lockstep=True)
                for lane in (FakeLane(*together.plans), FakeLane(*one_by_one.plans))
            ]
            assert runs[0][1].frames == runs[1][1].frames and len(runs[0][1].frames) > 6
            assert runs[0][0].calls == runs[1][0].calls

    def test_a_dead_processor_changes_no_call_before_the_reset(self) -> None:
        """The other TP ranks may not have noticed, and their forward needs this rank."""
        plans = [
            [StepPlan(1, (bind(5),), steps=2)],
            [StepPlan(2, (bind(6),), (5,), steps=2)],
            [StepPlan(0, reset=True)],
            [StepPlan(3, (bind(7),), steps=1)],
        ]
        calm, all_sent = run(FakeLane(*plans), lockstep=True)
        lost, sent = run(FakeLane(*plans), None, LaneLost("dead"), lockstep=True)
        assert lost.calls == calm.calls
        assert [frame.handles for frame in sent.frames] == [[5], [7]]
        assert sent.frames[-1].step == all_sent.frames[-1].step

    def test_a_lane_that_is_lost_when_nothing_runs_mutes_nobody(self) -> None:
        """No reset follows: that one was applied already."""
        plans = [[StepPlan(0, reset=True)], [StepPlan(1, frees=(5,))], [StepPlan(2, (bind(7),))]]
        plans.append([StepPlan(3, steps=2)])
        _, pub = run(FakeLane(*plans), LaneLost("dead"), lockstep=True)
        assert [frame.handles for frame in pub.frames] == [[7], [7]]


class TestOverlap:
    """An executor that returns the rows of the step before."""

    def test_a_freed_handle_is_drained_with_its_last_row(self) -> None:
        lane = FakeLane([StepPlan(1, (bind(5), bind(6)))], [], [StepPlan(2, frees=(5,))], [], [])
        _, pub = run(lane, executor=Overlapping())
        assert seen(pub) == [
            ([5, 6], [1, 1], []),
            ([5, 6], [2, 2], [5]),  # launched before the free, and published behind it
            ([6], [3], []),
            ([6], [4], []),
            ([6], [5], []),
        ]

    def test_what_is_in_flight_is_published_when_nothing_runs_any_more(self) -> None:
        lane = FakeLane([StepPlan(1, (bind(5),))], [StepPlan(2, frees=(5, 9))], [], [])
        executor, pub = run(lane, executor=Overlapping())
        assert seen(pub) == [([5], [1], [9, 5])]
        assert executor.calls == ["admit 5", "step", "free 5", "step"]

    def test_in_lockstep_too_the_last_free_waits_for_no_other_plan(self) -> None:
        plans = [StepPlan(1, (bind(5),), steps=1), StepPlan(2, frees=(5,))]
        executor, pub = run(FakeLane(plans, [], []), executor=Overlapping(), lockstep=True)
        assert seen(pub) == [([5], [1], [5])]
        assert executor.calls == ["admit 5", "step", "free 5", "step"]

    def test_a_free_that_comes_twice_is_drained_once(self) -> None:
        lane = FakeLane([StepPlan(1, (bind(5),))], [StepPlan(2, frees=(5,)), StepPlan(3, (), (5,))])
        _, pub = run(lane, executor=Overlapping())
        assert seen(pub) == [([5], [1], [5])]

    @pytest.mark.parametrize("reset", [True, False])
    def test_what_is_in_flight_for_dead_handles_is_dropped(self, reset: bool) -> None:
        plans = [[StepPlan(1, (bind(5),))], [], [StepPlan(2, (bind(6),), reset=reset)], [], []]
        errors = () if reset else (LaneLost("dead"),)
        _, pub = run(FakeLane(*plans), *errors, executor=Overlapping())
        frames = [frame for frame in seen(pub) if 5 not in frame[0]]
        assert len(frames) == len(pub.frames) - int(reset)
        assert frames and all(handles == [6] and not drained for handles, _, drained in frames)
