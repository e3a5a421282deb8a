"""One contract on four kinds of device; the three that are not here are played by the fake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.runners.rig import PLATFORMS, FakeCalls, LoggedModel, Rig, bind, handle
from tokenpipe.errors import (
    ConfigError,
    FrameTooLarge,
    LaneFull,
    LaneLost,
    RowError,
    RowsFailed,
    RunnerFailed,
    SlotBusy,
    TokenpipeError,
)
from tokenpipe.instance import ModelCard
from tokenpipe.runners import (
    GPUModelRunner,
    MetaxModelRunner,
    Row,
    Sampled,
    XPUModelRunner,
    runner_for,
)
from tokenpipe.runners.devices import PaddleCalls
from tokenpipe.types import SamplingParams
from tokenpipe.worker import StepLogprobs, model_card_of

pytestmark = pytest.mark.usefixtures("paddle")
ASYNCHRONOUS = PLATFORMS[1:]
each_platform = pytest.mark.parametrize("platform", PLATFORMS)
each_depth = pytest.mark.parametrize("depth", [0, 1, 2, 3])


@each_platform
@each_depth
def test_tokens_are_those_of_each_request_alone(platform: str, depth: int) -> None:
    rig = Rig.of(platform, depth)
    rig.change([bind(0, (1, 2, 3), 12), bind(1, (9,), 5)])
    rig.step()
    rig.change([bind(2, (4, 4), 7)])
    rig.finish()
    for slot, prompt, tokens in ((0, (1, 2, 3), 12), (1, (9,), 5), (2, (4, 4), 7)):
        assert rig.pub.tokens[handle(slot)] == rig.model.expected(prompt, tokens)
    steps = [step.step for step in rig.pub.steps]
    assert steps == sorted(set(steps))


@each_platform
def test_real_cpu_tensors_do_as_the_fake_does(platform: str, paddle: Any) -> None:
    if platform != "cpu":
        pytest.skip(f"no {platform} here: python -m tokenpipe.runners.selfcheck {platform}")
    rig = Rig("cpu", LoggedModel([]), 1, PaddleCalls(paddle))
    rig.change([bind(s, tokens=20) for s in range(4)])
    rig.finish()
    assert rig.pub.tokens == {handle(s): rig.model.expected((s + 1,), 20) for s in range(4)}


@pytest.mark.parametrize("platform", ASYNCHRONOUS)
def test_a_step_is_published_right_after_the_next_is_launched(platform: str) -> None:
    rig = Rig.of(platform)
    assert rig.runner.depth == 1
    rig.change([bind(0, tokens=3)])
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
    rig.change([bind(0, tokens=2)])
    rig.finish()
    assert rig.log == ["prefill 1", "read", "publish 1", "decode 1", "read", "publish 2"]


@each_platform
def test_a_device_is_looked_for_before_it_is_touched(platform: str) -> None:
    calls = FakeCalls(devices=2)
    runner = runner_for(platform)
    runner(LoggedModel([]), calls=calls)
    name = "cpu" if platform == "cpu" else f"{platform}:0"
    assert calls.log == ["count", f"set_device {name}"]
    calls.log.clear()
    with pytest.raises(ConfigError, match=f"there is no device {platform}"):
        runner(LoggedModel([]), device_id=2, calls=calls)
    assert calls.log == ["count"]


@pytest.mark.parametrize("kind", [GPUModelRunner, XPUModelRunner, MetaxModelRunner])
def test_a_platform_that_is_not_here_is_an_error_and_no_crash(kind: Any, paddle: Any) -> None:
    if kind.facts().count(paddle):
        pytest.skip("it is here")
    with pytest.raises(ConfigError, match="there is no device"):
        kind.select_device()
    with pytest.raises(ConfigError, match="there is no device"):
        kind(LoggedModel([]))


def test_only_copies_off_a_gpu_go_to_page_locked_memory() -> None:
    for platform in ASYNCHRONOUS:
        rig = Rig.of(platform)
        rig.change([bind(0, tokens=2)])
        rig.finish()
        assert {host.pinned for host in rig.calls.hosts} == {platform == "gpu"}


@each_platform
@each_depth
def test_a_freed_handle_is_called_drained_once_with_or_after_its_last_row(
    platform: str, depth: int
) -> None:
    rig = Rig.of(platform, depth)
    rig.change([bind(0), bind(1)])
    for _ in range(3):
        rig.step()
    rig.change(frees=[handle(0)])
    for _ in range(4):
        rig.step()
    rig.change(frees=[handle(1), handle(7)])
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
    rig.change([bind(s) for s in range(4)])
    rig.step()
    rig.change(frees=[handle(s) for s in range(4)])
    rig.finish()  # no further traffic
    assert sorted(rig.pub.drained) == [handle(s) for s in range(4)]
    assert rig.model.forwards == 1
    rig.change(frees=[handle(5)])  # of an empty batch
    rig.step()
    assert rig.pub.drained[-1] == handle(5) and rig.pub.steps[-1].rows == []


@pytest.mark.case("B36")
@each_platform
def test_a_slot_is_reused_in_the_plan_that_frees_it(platform: str) -> None:
    rig = Rig.of(platform)
    rig.change([bind(5, (1,))])
    rig.step()
    rig.step()
    rig.change([bind(5, (2,), generation=2)], [handle(5)])
    rig.step()
    rig.change([bind(5, (1,), generation=3, tokens=4)], [handle(5, 2)])
    rig.finish()
    assert rig.pub.tokens[handle(5)] == rig.model.expected((1,), 2)
    assert rig.pub.tokens[handle(5, 2)] == rig.model.expected((2,), 1)
    assert rig.pub.tokens[handle(5, 3)] == rig.model.expected((1,), 4)
    with pytest.raises(SlotBusy, match="slot 5"):
        rig.runner.admit(bind(5, (3,), generation=4))


@each_platform
def test_a_bind_that_is_freed_before_it_ran_never_reaches_the_model(platform: str) -> None:
    rig = Rig.of(platform)
    rig.change([bind(0)])
    rig.change([bind(1)], [handle(0), handle(1)])
    rig.finish()
    assert rig.model.forwards == 0
    assert rig.pub.drained == [handle(0), handle(1)]


@each_platform
def test_a_request_that_has_all_its_tokens_waits_for_its_free(platform: str) -> None:
    rig = Rig.of(platform)
    rig.change([bind(0, (1,), tokens=2, output=(8, 9)), bind(1, tokens=2)])
    rig.finish()
    assert list(rig.pub.tokens) == [handle(1)]
    rig.change(frees=[handle(0), handle(1)])
    rig.finish()
    assert rig.model.slots == {}


@each_platform
def test_warm_up_publishes_nothing_and_numbers_nothing(platform: str) -> None:
    rig = Rig.of(platform)
    rig.runner.warm_up(rows=3, tokens=4, steps=2)
    assert (rig.model.forwards, rig.model.slots, rig.pub.steps) == (3, {}, [])
    rig.change([bind(0, tokens=1)])
    rig.step()
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
    rig = Rig.of(platform, depth, Faulty)
    return rig, rig.model


@each_platform
@pytest.mark.parametrize("depth", [0, 1])
def test_a_row_that_the_model_gives_up_is_that_rows_error(platform: str, depth: int) -> None:
    rig, model = faulty(platform, depth)
    model.refuse = {handle(1)}
    rig.change([bind(s, tokens=6) for s in range(3)])  # 1 fails in its prefill
    rig.step()
    rig.step()
    model.refuse = {handle(2)}  # 2 while it decodes
    rig.finish()
    assert rig.pub.errors == [handle(1), handle(2)]
    assert rig.pub.tokens[handle(0)] == model.expected((1,), 6)
    assert rig.pub.tokens[handle(2)] == model.expected((3,), 2)
    model.refuse = {handle(4)}
    rig.change([bind(4)], [handle(s) for s in range(3)])  # the only row fails
    rig.finish()
    assert rig.pub.errors[-1] == handle(4) and not rig.pub.failed


@each_platform
def test_an_error_of_the_model_fails_the_rank(platform: str) -> None:
    rig, model = faulty(platform)
    rig.change([bind(0)])
    rig.step()
    model.error = OSError("(External) CUDA error(700), an illegal memory access")
    with pytest.raises(RunnerFailed, match="illegal memory access"):
        rig.loop.run()
    assert len(rig.pub.failed) == 1 and "OSError" in rig.pub.failed[0]
    with pytest.raises(RunnerFailed, match="illegal memory access"):  # and stays failed
        rig.runner.step()


@each_platform
def test_rows_that_are_not_the_models_to_give_up_fail_the_rank(platform: str) -> None:
    rig, model = faulty(platform)
    model.error = RowsFailed({handle(9)}, "whose?")
    rig.change([bind(0)])
    with pytest.raises(RunnerFailed, match="whose"):
        rig.loop.run()
    assert rig.pub.failed


@pytest.mark.parametrize("platform", ASYNCHRONOUS)
@pytest.mark.parametrize("call", ["copy", "record", "wait", "read"])
def test_an_error_of_the_device_reaches_the_processor(platform: str, call: str) -> None:
    rig = Rig.of(platform)
    rig.change([bind(0)])
    rig.step()
    rig.calls.fail = call
    with pytest.raises(RunnerFailed, match=f"{call} failed"):
        rig.loop.run()
    assert len(rig.pub.failed) == 1 and f"{call} failed" in rig.pub.failed[0]


@each_platform
@each_depth
def test_a_full_lane_leaves_the_step_to_be_published_again(platform: str, depth: int) -> None:
    rig = Rig.of(platform, depth)
    rig.change([bind(0, tokens=9)])
    for _ in range(depth):
        rig.step()
    forwards = rig.model.forwards
    for _ in range(3):
        rig.pub.refuse = LaneFull("full")
        rig.step()
    assert rig.log.count("wait for room") == 3 and rig.model.forwards == forwards + 3
    rig.finish()
    assert rig.pub.tokens == {handle(0): rig.model.expected((1,), 9)}
    assert [step.step for step in rig.pub.steps] == list(range(1, 10))
    assert not rig.pub.failed


@each_platform
def test_a_frame_that_no_lane_can_carry_fails_the_rank(platform: str) -> None:
    rig = Rig.of(platform, 0)
    rig.change([bind(0)])
    rig.pub.refuse = FrameTooLarge("larger than the bound")
    with pytest.raises(FrameTooLarge, match="larger than the bound"):
        rig.loop.run()
    assert rig.pub.failed


@each_platform
@pytest.mark.parametrize("told", [True, False])
def test_a_dead_processor_costs_what_is_bound_and_in_flight(platform: str, told: bool) -> None:
    rig = Rig.of(platform, 1)
    rig.change([bind(0), bind(1)])
    rig.step()
    if told:
        rig.change(reset=True)
    else:
        rig.pub.refuse = LaneLost("processor 0 died")
    rig.step()
    assert rig.loop.idle and rig.model.slots == {}
    rig.change([bind(0, (5,), 3, generation=2)])
    rig.finish()
    assert rig.pub.tokens == {handle(0, 2): rig.model.expected((5,), 3)}
    assert rig.pub.drained == [] and rig.runner.step() is None


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
    model = Own(np.asarray if numpy else paddle.to_tensor)
    rig = Rig(platform, model, depth)
    rig.change([bind(0, tokens=8), bind(1, tokens=40)])
    rig.step(3)
    rig.change([bind(2, tokens=2)])  # its prefill and the others' rows share a step
    rig.step(6)
    rig.change(frees=[handle(slot) for slot in range(3)])
    rig.finish()

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

    rig = Rig("gpu", Reuses(np.asarray), 1)
    rig.change([bind(0, tokens=4)])
    rig.step(6)
    assert rig.pub.tokens[handle(0)][:4] == [1, 2, 3, 4]


@each_platform
def test_a_row_without_a_finite_logit_goes_out_as_a_token_that_is_refused(platform: str) -> None:
    class Nan(LoggedModel):
        def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Any:
            logits = super().decode(rows, last, lengths)
            return logits * self._paddle.to_tensor(np.array([[1.0], [np.nan]], np.float32))

    rig = Rig.of(platform, make=Nan)
    params = SamplingParams(temperature=0.7, logprobs=1, max_tokens=3)
    rig.change([bind(0, tokens=3), bind(1, tokens=3, params=params)])
    rig.finish()
    assert rig.pub.tokens[handle(0)] == rig.model.expected((1,), 3)
    assert rig.pub.tokens[handle(1)][1:] == [-1, -1]


@each_platform
def test_an_idle_runner_has_nothing_to_run(platform: str) -> None:
    rig = Rig.of(platform)
    assert rig.runner.step() is None
    rig.change([bind(0, tokens=2)])
    rig.finish()
    assert rig.runner.step() is None and rig.model.forwards == 2


@each_platform
@each_depth
def test_a_runner_says_which_handles_a_step_in_flight_may_have(platform: str, depth: int) -> None:
    runner = Rig.of(platform, depth).runner
    runner.admit(bind(0))
    runner.admit(bind(1))
    for _ in range(depth):
        rows = runner.step()
        assert rows is not None and len(rows.handles) == 0
    assert runner.free(handle(0)) is bool(depth)
    drained: list[int] = []
    for _ in range(depth + 1):
        rows = runner.step()
        assert rows is not None and not (drained and handle(0) in rows.handles)
        drained += rows.drained
    assert drained == [handle(0)] * bool(depth)


def test_a_runner_says_of_itself_what_its_model_says() -> None:
    class Declares(LoggedModel):
        max_model_len = 77
        request_fields = ("lora",)

    runner = Rig.of("cpu", make=Declares).runner
    assert (runner.max_model_len, runner.request_fields) == (77, ("lora",))
    assert model_card_of(runner) == ModelCard(("lora",), 77)
    assert model_card_of(Rig.of("cpu").runner) == ModelCard()


def test_tokens_of_two_dimensions_need_counts() -> None:
    class Wide(Own):
        beside: StepLogprobs | None = None

        def prefill(self, rows: Sequence[Row]) -> Sampled:
            return Sampled(np.zeros((len(rows), 3), np.int64), None, self.beside)

    for beside in (None, StepLogprobs(*[np.zeros((1, 3, 1))] * 3)):
        model = Wide(np.asarray)
        model.beside = beside
        rig = Rig("cpu", model)
        rig.change([bind(0)])
        with pytest.raises((RowError, RunnerFailed), match=r"tokens: shape \(1, 3\)"):
            rig.step()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="no runner for 'tpu': one of cpu, gpu, xpu, metax_gpu"):
        runner_for("tpu")
    with pytest.raises(ConfigError, match="depth"):
        Rig.of("cpu", -1)
