"""A worker with a model of its own: plans come by a StepLane, rows go by a Publisher."""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import tokenpipe as tp


class Running:
    """The batch of one rank."""

    def __init__(self) -> None:
        self.left: dict[int, int] = {}

    def change(self, plan: tp.StepPlan) -> list[int]:
        """Apply a plan; returns the handles that have no more rows."""
        if plan.reset:
            self.left.clear()
        for bind in plan.binds:
            assert_type(bind, tp.StepBind)
            assert_type(bind.params, tp.SamplingParams)
            self.left[bind.handle] = bind.max_tokens - bind.output_tokens
        for handle in plan.frees:
            self.left.pop(handle, None)
        return list(plan.frees)

    def step(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Compute a token for each."""
        handles = np.array(list(self.left), np.int64)
        return handles, np.zeros(len(handles), np.int32)


def work(endpoint: str) -> None:
    """Run until the engine ends the lane."""
    lane = tp.StepLane.worker(endpoint, dp_rank=0, tp_rank=0)
    assert_type(lane, tp.StepLaneReader)
    running, step = Running(), 0
    with tp.Publisher(endpoint, dp_rank=0) as pub:
        assert_type(pub, tp.Publisher)
        while not lane.ended:
            drained: list[int] = []
            for plan in lane.recv(timeout_s=0.05):
                drained += running.change(plan)
            step += 1
            handles, tokens = running.step()
            extras = {0: tp.RowExtras(cached_tokens=3, custom=b"mine")}
            status = [tp.RowStatus.OK] * len(handles)
            logprobs = tp.StepLogprobs(tokens[:, None], np.zeros((len(tokens), 1)), tokens)
            pub.publish(
                step, handles, tokens, None, status, logprobs, np.array(drained), extras=extras
            )
            assert_type(pub.last_step, int | None)
        unsent = pub.close(timeout_s=1.0)
        assert_type(unsent, int)


def wrong(pub: tp.Publisher, lane: tp.StepLaneReader, plan: tp.StepPlan) -> None:
    """What a checker must refuse."""
    pub.publish("1", [], [])  # type: ignore[arg-type]
    pub.publish(1, [])  # type: ignore[call-arg]
    pub.publish(1, [], [], extras=[tp.RowExtras()])  # type: ignore[arg-type]
    tp.Publisher(3)  # type: ignore[arg-type]
    tp.Publisher("/run", dp_rank="0")  # type: ignore[arg-type]
    lane.recv("soon")  # type: ignore[arg-type]
    lane.send(plan)  # type: ignore[attr-defined]
    tp.StepPlan("1")  # type: ignore[arg-type]
    tp.StepPlan(1, [1])  # type: ignore[arg-type]
    tp.RowExtras(cached_tokens="3")  # type: ignore[arg-type]
    plan.number = 2  # type: ignore[misc]
