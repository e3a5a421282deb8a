"""The loop of a worker: calls in the order of the plans; one bad request harms one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokenpipe.errors import FieldError, LaneLost, RequestRefused
from tokenpipe.extras import RowAnnex
from tokenpipe.notify import Notifier
from tokenpipe.types import RowStatus
from tokenpipe.wire import StepBind, StepPlan
from tokenpipe.worker.executor import StepRows
from tokenpipe.worker.worker_loop import WorkerLoop

REFUSALS: dict[int, Exception] = {
    13: KeyError("weights"),
    14: RequestRefused("the prompt is too long"),
    15: RequestRefused("there is no 'x'", "lora"),
    16: FieldError("top_k", "must be 0"),
}


class Lane:
    """Gives what is in `plans`, a list a turn; ends with the last."""

    def __init__(self, *plans: list[StepPlan]) -> None:
        self.plans = list(plans)
        self.ended = False

    def recv(self, timeout_s: float) -> list[StepPlan]:
        self.ended = not self.plans
        return self.plans.pop(0) if self.plans else []


class Pub:
    """Keeps what is published; loses its lane at the steps in `lost_at`."""

    def __init__(self, lost_at: set[int] | None = None) -> None:
        self.steps: list[tuple[list[int], list[int], list[int], list[int]]] = []
        self.lost_at = lost_at or set()
        self.polls = 0
        self.extras: list[dict[int, RowAnnex]] = []

    def publish(self, step: int, handles: Any, tokens: Any, *_: Any, **rest: Any) -> None:
        if step in self.lost_at:
            raise LaneLost("the processor died")
        status = [] if rest["status"] is None else rest["status"].tolist()
        gone = rest.get("drained")
        drained = [] if gone is None else gone.tolist()
        self.extras.append(rest.get("annexes") or {})
        self.steps.append((handles.tolist(), tokens.tolist(), status, drained))

    def poll(self) -> None:
        self.polls += 1


class Fake:
    """One token a step, the number of the step; refuses the key 13."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.running: list[int] = []
        self.done = 0

    def admit(self, binding: StepBind) -> None:
        if binding.key in REFUSALS:
            raise REFUSALS[binding.key]
        self.calls.append(f"admit {binding.handle}")
        self.running.append(binding.handle)

    def step(self) -> StepRows | None:
        self.calls.append("step")
        self.done += 1
        n = len(self.running)
        return StepRows(np.array(self.running, np.int64), np.full(n, self.done, np.int32))

    def free(self, handle: int) -> None:
        self.calls.append(f"free {handle}")
        self.running.remove(handle)


def bind(handle: int, key: int = 1) -> StepBind:
    return StepBind(handle, key, 0)


def run(lane: Lane, pub: Pub | None = None, **options: Any) -> tuple[Fake, Pub]:
    engine, made = Fake(), pub or Pub()
    WorkerLoop(lane, made, engine, notifier=Notifier(None), **options).run()
    return engine, made


def test_runs_on_between_plans_and_drains_what_is_freed() -> None:
    lane = Lane([StepPlan(1, (bind(5), bind(6)))], [], [StepPlan(2, frees=(5,))], [])
    engine, pub = run(lane)
    assert engine.calls[:3] == ["admit 5", "admit 6", "step"]
    assert pub.steps[:3] == [
        ([5, 6], [1, 1], [], []),
        ([5, 6], [2, 2], [], []),
        ([6], [3], [], [5]),
    ]


def test_freed_and_bound_in_one_plan_is_drained_and_never_admitted() -> None:
    engine, pub = run(Lane([StepPlan(1, (bind(5),), (5, 77))]))
    assert engine.calls == [] and pub.steps == [([], [], [], [5, 77])]


def test_refused_request_ends_with_its_reason_and_the_others_go_on() -> None:
    binds = (bind(5), *(bind(6 + i, key) for i, key in enumerate(REFUSALS)))
    lane = Lane([StepPlan(1, binds)], [StepPlan(2, frees=(6,))])
    engine, pub = run(lane)
    refused, failed = RowStatus.REFUSED, RowStatus.ERROR
    assert pub.steps[0] == ([6, 7, 8, 9], [], [failed, refused, refused, refused], [])
    assert pub.extras[0] == {
        0: RowAnnex(error="KeyError: 'weights'"),
        1: RowAnnex(error="the prompt is too long"),
        2: RowAnnex(error="lora: there is no 'x'", error_field="lora"),
        3: RowAnnex(error="top_k: must be 0", error_field="top_k"),
    }
    assert pub.steps[1] == ([5], [1], [], []) and pub.extras[1] == {}
    assert pub.steps[2] == ([5], [2], [], [6]) and "free 6" not in engine.calls


def test_idle_polls_and_never_steps() -> None:
    engine, pub = run(Lane([], [], []))
    assert engine.calls == [] and pub.polls >= 3 and pub.steps == []


def test_reset_forgets_without_a_word() -> None:
    plans = [StepPlan(1, (bind(5),), (9,)), StepPlan(0, (bind(6),), reset=True)]
    engine, pub = run(Lane(plans))
    assert engine.calls[:3] == ["admit 5", "free 5", "admit 6"]
    assert pub.steps[0] == ([6], [1], [], [])


def test_lost_processor_costs_the_batch_and_not_the_worker() -> None:
    lane = Lane([StepPlan(1, (bind(5),))], [StepPlan(2, (bind(6),))])
    engine, pub = run(lane, Pub(lost_at={1}))
    assert engine.calls[:5] == ["admit 5", "step", "free 5", "admit 6", "step"]
    assert pub.steps[0] == ([6], [2], [], [])


def test_lockstep_runs_what_each_plan_grants_before_the_next() -> None:
    plans = [StepPlan(1, (bind(5),), steps=2), StepPlan(2, (bind(6),), steps=1)]
    engine, pub = run(Lane(plans, []), lockstep=True)
    assert engine.calls == ["admit 5", "step", "step", "admit 6", "step"]
    assert [handles for handles, *_ in pub.steps] == [[5], [5], [5, 6]]


def test_engine_that_breaks_ends_the_loop() -> None:
    class Broken(Fake):
        def step(self) -> StepRows | None:
            raise RuntimeError("out of memory")

    loop = WorkerLoop(Lane([StepPlan(1, (bind(5),))]), Pub(), Broken(), notifier=Notifier(None))
    with pytest.raises(RuntimeError, match="out of memory"):
        loop.run()
