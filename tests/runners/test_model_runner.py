"""One contract on four kinds of device; the three that are not here are played by the fake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.runners.rig import PLATFORMS, FakeCalls, LoggedModel, Pub, Rig, bind, handle
from tokenpipe.errors import (
    ConfigError,
    FrameTooLarge,
    LaneFull,
    LaneLost,
    RowsFailed,
    RunnerFailed,
    SlotBusy,
    TokenpipeError,
)
from tokenpipe.runners import (
    GPUModelRunner,
    MetaxModelRunner,
    Row,
    Sampled,
    XPUModelRunner,
    runner_for,
)
from tokenpipe.types import SamplingParams
from tokenpipe.wire import StepPlan
from tokenpipe.worker import StepLogprobs

pytestmark = pytest.mark.usefixtures("paddle")
ASYNCHRONOUS = PLATFORMS[1:]
each_platform = pytest.mark.parametrize("platform", PLATFORMS)
each_depth = pytest.mark.parametrize("depth", [0, 1, 2, 3])


@each_platform
@each_depth
def test_tokens_are_those_of_each_request_alone(platform: str, depth: int) -> None:
    rig = Rig.of(platform, depth)
    rig.runner.change([bind(0, (1, 2, 3), 12), bind(1, (9,), 5)])
    rig.runner.step()
    rig.runner.change([bind(2, (4, 4), 7)])
    rig.finish()
    for slot, prompt, tokens in ((0, (1, 2, 3), 12), (1, (9,), 5), (2, (4, 4), 7)):
        assert rig.pub.tokens[handle(slot)] == rig.model.expected(prompt, tokens)
    steps = [step.step for step in rig.pub.steps]
    assert steps == sorted(set(steps))


@each_platform
def test_real_cpu_tensors_do_as_the_fake_does(platform: str) -> None:
    if platform != "cpu":
        pytest.skip(f"no {platform} here: python -m tokenpipe.runners.selfcheck {platform}")
    log: list[str] = []
    model, pub = LoggedModel(log), Pub(log)
    runner = runner_for("cpu")(model, pub, depth=1)
    runner.change([bind(s, tokens=20) for s in range(4)])
    while runner.step():
        pass
    assert pub.tokens == {handle(s): model.expected((s + 1,), 20) for s in range(4)}


@pytest.mark.parametrize("platform", ASYNCHRONOUS)
def test_a_step_is_published_right_after_the_next_is_launched(platform: str) -> None:
    rig = Rig.of(platform)
    assert rig.runner.depth == 1
    rig.runner.change([bind(0, tokens=3)])
    rig.finish()
    assert rig.log == [
        *["prefill 1", "copy", "record"],
        *["decode 1", "copy", "record", "wait", "read", "publish 1"],
        *["decode 1", "copy", "record", "wait", "read", "publish 2"],
        *["wait", "read", "publish 3"],  # nothing follows: the idle worker publishes at once
    ]


def test_the_cpu_publishes_before_the_next_forward() -> None:
    rig = Rig.of("cpu")
    assert rig.runner.depth == 0
    rig.runner.change([bind(0, tokens=2)])
    rig.finish()
    assert rig.log == ["prefill 1", "read", "publish 1", "decode 1", "read", "publish 2"]


@each_platform
def test_a_device_is_looked_for_before_it_is_touched(platform: str) -> None:
    calls = FakeCalls(devices=2)
    log: list[str] = []
    runner = runner_for(platform)
    runner(LoggedModel(log), Pub(log), calls=calls)
    name = "cpu" if platform == "cpu" else f"{platform}:0"
    assert calls.log == ["count", f"set_device {name}"]
    calls.log.clear()
    with pytest.raises(ConfigError, match=f"there is no device {platform}"):
        runner(LoggedModel(log), Pub(log), device_id=2, calls=calls)
    assert calls.log == ["count"]


@pytest.mark.parametrize("kind", [GPUModelRunner, XPUModelRunner, MetaxModelRunner])
def test_a_platform_that_is_not_here_is_an_error_and_no_crash(kind: Any, paddle: Any) -> None:
    if kind.facts().count(paddle):
        pytest.skip("it is here")
    with pytest.raises(ConfigError, match="there is no device"):
        kind.select_device()
    with pytest.raises(ConfigError, match="there is no device"):
        kind(LoggedModel([]), Pub([]))


def test_only_copies_off_a_gpu_go_to_page_locked_memory() -> None:
    for platform in ASYNCHRONOUS:
        rig = Rig.of(platform)
        rig.runner.change([bind(0, tokens=2)])
        rig.finish()
        assert {host.pinned for host in rig.calls.hosts} == {platform == "gpu"}


@each_platform
@each_depth
def test_a_freed_handle_is_called_drained_once_with_or_after_its_last_row(
    platform: str, depth: int
) -> None:
    rig = Rig.of(platform, depth)
    rig.runner.change([bind(0), bind(1)])
    for _ in range(3):
        rig.runner.step()
    rig.runner.change(frees=[handle(0)])
    for _ in range(4):
        rig.runner.step()
    rig.runner.change(frees=[handle(1), handle(7)])
    rig.finish()
    assert sorted(rig.pub.drained) == sorted([handle(0), handle(1), handle(7)])
    ended: set[int] = set()
    for step in rig.pub.steps:
        assert not ended & {h for h, _ in step.rows}, "a row after its drained mark"
        ended |= set(step.drained)
    assert rig.pub.tokens[handle(0)] == rig.model.expected((1,), 3)
    assert rig.pub.tokens[handle(1)] == rig.model.expected((2,), 7)
    assert rig.model.slots == {}


@pytest.mark.case("B31")
@each_platform
@each_depth
def test_when_the_whole_batch_goes_its_markers_go_too(platform: str, depth: int) -> None:
    rig = Rig.of(platform, depth)
    rig.runner.change([bind(s) for s in range(4)])
    rig.runner.step()
    rig.runner.change(frees=[handle(s) for s in range(4)])
    assert rig.runner.step() is False  # one call, no further traffic
    assert sorted(rig.pub.drained) == [handle(s) for s in range(4)]
    rig.runner.change(frees=[handle(5)])  # of an empty batch
    assert rig.runner.step() is False
    assert rig.pub.drained[-1] == handle(5) and rig.pub.steps[-1].rows == []


@pytest.mark.case("B36")
@each_platform
def test_a_slot_is_reused_in_the_plan_that_frees_it(platform: str) -> None:
    rig = Rig.of(platform)
    rig.runner.change([bind(5, (1,))])
    rig.runner.step()
    rig.runner.step()
    rig.runner.change([bind(5, (2,), generation=2)], [handle(5)])
    rig.runner.step()
    rig.runner.change([bind(5, (1,), generation=3, tokens=4)], [handle(5, 2)])
    rig.finish()
    assert rig.pub.tokens[handle(5)] == rig.model.expected((1,), 2)
    assert rig.pub.tokens[handle(5, 2)] == rig.model.expected((2,), 1)
    assert rig.pub.tokens[handle(5, 3)] == rig.model.expected((1,), 4)
    with pytest.raises(SlotBusy, match="slot 5"):
        rig.runner.change([bind(5, (3,), generation=4)], [handle(0)])
    assert handle(0) not in rig.pub.drained  # nothing of that plan was done


@each_platform
def test_a_bind_that_is_freed_before_it_ran_never_reaches_the_model(platform: str) -> None:
    rig = Rig.of(platform)
    rig.runner.change([bind(0)])
    rig.runner.change([bind(1)], [handle(0), handle(1)])
    rig.finish()
    assert rig.model.forwards == 0
    assert rig.pub.drained == [handle(0), handle(1)]


@each_platform
def test_a_request_that_has_all_its_tokens_waits_for_its_free(platform: str) -> None:
    rig = Rig.of(platform)
    rig.runner.change([bind(0, (1,), tokens=2, output=(8, 9)), bind(1, tokens=2)])
    rig.finish()
    assert list(rig.pub.tokens) == [handle(1)]
    rig.runner.change(frees=[handle(0), handle(1)])
    rig.finish()
    assert rig.model.slots == {}


@each_platform
def test_warm_up_publishes_nothing_and_numbers_nothing(platform: str) -> None:
    rig = Rig.of(platform)
    rig.runner.warm_up(rows=3, tokens=4, steps=2)
    assert (rig.model.forwards, rig.model.slots, rig.pub.steps) == (3, {}, [])
    rig.runner.change([bind(0, tokens=1)])
    with pytest.raises(TokenpipeError, match="must be empty"):
        rig.runner.warm_up()
    rig.finish()
    assert [step.step for step in rig.pub.steps] == [1]


class Faulty(LoggedModel):
    """Gives up what `refuse` names, once each."""

    def __init__(self, log: list[str]) -> None:
        super().__init__(log)
        self.refuse: set[int] = set()
        self.error: Exception | None = None

    def prefill(self, rows: Sequence[Row]) -> Any:
        self._judge(rows)
        return super().prefill(rows)

    def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Any:
        self._judge(rows)
        return super().decode(rows, last, lengths)

    def _judge(self, rows: Sequence[Row]) -> None:
        if self.error is not None:
            raise self.error
        if self.refuse & {row.handle for row in rows}:
            raise RowsFailed(self.refuse, "out of cache")


def faulty(platform: str, depth: int | None = None) -> tuple[Rig, Faulty]:
    rig = Rig.of(platform, depth)
    model = Faulty(rig.log)
    runner = runner_for(platform)(model, rig.pub, depth=depth, calls=rig.calls)
    return Rig(runner, model, rig.pub, rig.calls), model


@each_platform
@pytest.mark.parametrize("depth", [0, 1])
def test_a_row_that_the_model_gives_up_is_that_rows_error(platform: str, depth: int) -> None:
    rig, model = faulty(platform, depth)
    model.refuse = {handle(1)}
    rig.runner.change([bind(s, tokens=6) for s in range(3)])  # 1 fails in its prefill
    rig.runner.step()
    rig.runner.step()
    model.refuse = {handle(2)}  # 2 while it decodes
    rig.finish()
    assert rig.pub.errors == [handle(1), handle(2)]
    assert rig.pub.tokens[handle(0)] == model.expected((1,), 6)
    assert rig.pub.tokens[handle(2)] == model.expected((3,), 2)
    model.refuse = {handle(4)}
    rig.runner.change([bind(4)], [handle(s) for s in range(3)])  # the only row fails
    rig.finish()
    assert rig.pub.errors[-1] == handle(4) and not rig.pub.failed


@each_platform
def test_an_error_of_the_model_fails_the_rank(platform: str) -> None:
    rig, model = faulty(platform)
    rig.runner.change([bind(0)])
    rig.runner.step()
    model.error = OSError("(External) CUDA error(700), an illegal memory access")
    for _ in range(2):  # and stays failed
        with pytest.raises(RunnerFailed, match="illegal memory access"):
            rig.runner.step()
    assert len(rig.pub.failed) == 1 and "OSError" in rig.pub.failed[0]
    with pytest.raises(RunnerFailed):
        rig.runner.idle()


@each_platform
def test_rows_that_are_not_the_models_to_give_up_fail_the_rank(platform: str) -> None:
    rig, model = faulty(platform)
    model.error = RowsFailed({handle(9)}, "whose?")
    rig.runner.change([bind(0)])
    with pytest.raises(RunnerFailed, match="whose"):
        rig.runner.step()
    assert rig.pub.failed


@pytest.mark.parametrize("platform", ASYNCHRONOUS)
@pytest.mark.parametrize("call", ["copy", "record", "wait", "read"])
def test_an_error_of_the_device_reaches_the_processor(platform: str, call: str) -> None:
    rig = Rig.of(platform)
    rig.runner.change([bind(0)])
    rig.runner.step()
    rig.calls.fail = call
    with pytest.raises(RunnerFailed, match=f"{call} failed"):
        rig.runner.step()
    assert len(rig.pub.failed) == 1 and f"{call} failed" in rig.pub.failed[0]


@each_platform
@each_depth
def test_a_full_lane_leaves_the_step_to_be_published_again(platform: str, depth: int) -> None:
    rig = Rig.of(platform, depth)
    rig.runner.change([bind(0, tokens=9)])
    for _ in range(depth):
        rig.runner.step()
    for _ in range(3):
        rig.pub.refuse = LaneFull("full")
        with pytest.raises(LaneFull):
            rig.runner.step()
    rig.finish()
    assert rig.pub.tokens == {handle(0): rig.model.expected((1,), 9)}
    assert [step.step for step in rig.pub.steps] == list(range(1, 10))
    assert not rig.pub.failed


@each_platform
def test_a_frame_that_no_lane_can_carry_fails_the_rank(platform: str) -> None:
    rig = Rig.of(platform, 0)
    rig.runner.change([bind(0)])
    rig.pub.refuse = FrameTooLarge("larger than the bound")
    with pytest.raises(RunnerFailed, match="larger than the bound"):
        rig.runner.step()
    assert rig.pub.failed


@each_platform
def test_forget_drops_what_nobody_waits_for(platform: str) -> None:
    rig = Rig.of(platform, 1)
    rig.runner.change([bind(0), bind(1)])
    rig.runner.step()
    rig.runner.forget()
    assert not rig.runner.working and rig.model.slots == {}
    rig.runner.change([bind(0, generation=2, tokens=2)])
    rig.finish()
    assert list(rig.pub.tokens) == [handle(0, 2)]


class Own:
    """A model that samples itself: rows of 0 to 3 accepted tokens, logprobs beside them."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.fed: list[Any] = []

    def prefill(self, rows: Sequence[Row]) -> Sampled:
        for row in rows:
            row.state = 0
        return Sampled(self.tensor(np.array([100 + row.slot for row in rows])))

    def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Sampled:
        self.fed.append((last, lengths))
        tokens = np.full((len(rows), 3), -1)
        counts = np.zeros(len(rows), np.int32)
        for i, row in enumerate(rows):
            counts[i] = (row.state + row.slot) % 4
            tokens[i, : counts[i]] = row.state * 10 + np.arange(counts[i])
            row.state += 1
        ids = np.stack([tokens, tokens + 1], axis=-1)
        logprobs = StepLogprobs(
            self.tensor(ids), self.tensor(-ids.astype(np.float32)), self.tensor(tokens + 5)
        )
        return Sampled(self.tensor(tokens), self.tensor(counts), logprobs)

    def free(self, row: Row) -> None:
        pass


@each_platform
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("numpy", [True, False])
def test_speculative_rows(platform: str, depth: int, numpy: bool, paddle: Any) -> None:
    rig = Rig.of(platform, depth)
    model = Own(np.asarray if numpy else paddle.to_tensor)
    runner = runner_for(platform)(model, rig.pub, depth=depth, calls=rig.calls)
    runner.change([bind(0, tokens=8), bind(1, tokens=40)])
    for _ in range(3):
        runner.step()
    runner.change([bind(2, tokens=2)])  # its prefill and the others' rows share a step
    for _ in range(6):
        runner.step()
    runner.flush()

    def accepted(slot: int, steps: int) -> list[int]:
        each = ([s * 10 + i for i in range((s + slot) % 4)] for s in range(steps))
        return [100 + slot, *(token for tokens in each for token in tokens)]

    one = rig.pub.tokens[handle(1)]
    assert one == accepted(1, 8)[: len(one)] and len(one) > 9
    zero = rig.pub.tokens[handle(0)]
    assert len(zero) >= 8 and zero == accepted(0, 9)[: len(zero)]
    assert len(zero) <= 8 + 3 * (1 + depth)  # silent once its tokens are known to be enough
    assert all(fed == (None, None) for fed in model.fed)
    for step in rig.pub.steps:
        if step.logprobs is None:
            continue
        k = np.asarray(step.logprobs.k)
        with_lp = [t for (_, tokens), n in zip(step.rows, k, strict=True) if n >= 0 for t in tokens]
        ids = np.asarray(step.logprobs.token_ids).reshape(-1, 2)
        assert ids[:, 0].tolist() == with_lp and ids[:, 1].tolist() == [t + 1 for t in with_lp]
        assert np.asarray(step.logprobs.ranks).tolist() == [t + 5 for t in with_lp]


def test_buffers_that_a_model_fills_again_are_safe_in_flight() -> None:
    class Reuses(Own):
        buffer = np.zeros(1, np.int64)

        def prefill(self, rows: Sequence[Row]) -> Sampled:
            return self.decode(rows, None, None)

        def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Sampled:
            self.buffer += 1
            return Sampled(self.buffer)

    rig = Rig.of("gpu", 1)
    runner = GPUModelRunner(Reuses(np.asarray), rig.pub, calls=rig.calls)
    runner.change([bind(0, tokens=4)])
    for _ in range(6):
        runner.step()
    assert rig.pub.tokens[handle(0)][:4] == [1, 2, 3, 4]


@each_platform
def test_a_row_without_a_finite_logit_goes_out_as_a_token_that_is_refused(platform: str) -> None:
    class Nan(LoggedModel):
        def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Any:
            logits = super().decode(rows, last, lengths)
            return logits * self._paddle.to_tensor(np.array([[1.0], [np.nan]], np.float32))

    rig = Rig.of(platform)
    runner = runner_for(platform)(Nan(rig.log), rig.pub, calls=rig.calls)
    params = SamplingParams(temperature=0.7, logprobs=1, max_tokens=3)
    runner.change([bind(0, tokens=3), bind(1, tokens=3, params=params)])
    while runner.step():
        pass
    assert rig.pub.tokens[handle(0)] == rig.model.expected((1,), 3)
    assert rig.pub.tokens[handle(1)][1:] == [-1, -1]


class Lane:
    """Plans one after another, None for a timeout."""

    def __init__(self, plans: list[StepPlan | None]) -> None:
        self.plans = plans
        self.waits: list[float] = []
        self.ended = False

    def recv(self, timeout_s: float = 0.0) -> list[StepPlan]:
        self.waits.append(timeout_s)
        if not self.plans:
            self.ended = True
            return []
        plan = self.plans.pop(0)
        return [] if plan is None else [plan]


@each_platform
@each_depth
def test_run_takes_plans_steps_by_itself_and_polls_when_idle(platform: str, depth: int) -> None:
    rig = Rig.of(platform, depth)
    plans: list[StepPlan | None] = [None, StepPlan(1, (bind(0, tokens=3),))]
    lane = Lane([*plans, *[None] * 8, StepPlan(2, (), (handle(0),)), None, None])
    rig.runner.run(lane)
    assert rig.pub.tokens == {handle(0): rig.model.expected((1,), 3)}
    assert rig.pub.drained == [handle(0)]
    assert max(lane.waits) <= 0.1 and rig.pub.polls >= 3
    assert lane.waits[2] == 0.0  # a worker with rows waits for nobody


@each_platform
@each_depth
def test_in_lockstep_each_plan_is_one_step(platform: str, depth: int) -> None:
    rig = Rig.of(platform, depth)
    plans: list[StepPlan | None] = [StepPlan(1, (bind(0),)), None, StepPlan(2), StepPlan(3)]
    rig.runner.run(Lane([*plans, None, StepPlan(4, (), (handle(0),)), None]), lockstep=True)
    assert rig.pub.tokens == {handle(0): rig.model.expected((1,), 3)}
    assert rig.pub.drained == [handle(0)]


@each_platform
@pytest.mark.parametrize("lockstep", [False, True])
def test_a_dead_processor_costs_the_batch_and_not_the_worker(platform: str, lockstep: bool) -> None:
    rig = Rig.of(platform, 1)
    first = [StepPlan(1, (bind(0),)), StepPlan(2), StepPlan(3)]
    plans = [*first, StepPlan(0, reset=True), StepPlan(4, (bind(0, (5,), 3, generation=2),))]
    rig.pub.refuse = LaneLost("processor 0 died")
    rig.runner.run(Lane([*plans, *[StepPlan(n) for n in range(5, 12)]]), lockstep=lockstep)
    assert rig.pub.tokens[handle(0, 2)] == rig.model.expected((5,), 3)
    assert handle(0) not in rig.pub.tokens and rig.pub.drained == []


def test_run_ends_when_it_is_told_to() -> None:
    rig = Rig.of("cpu")
    rig.runner.stopped = True
    rig.runner.run(Lane([StepPlan(1, (bind(0),))]))
    assert not rig.pub.steps


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="no runner for 'tpu': one of cpu, gpu, xpu, metax_gpu"):
        runner_for("tpu")
    with pytest.raises(ConfigError, match="depth"):
        Rig.of("cpu", -1)
