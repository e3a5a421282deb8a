"""Faults from the field, with runners in the loop: pipeline, lanes, processor, clients."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.runners.engine import Engine, Shuffler, SpeculativeModel
from tests.runners.rig import FakeCalls, LoggedModel
from tokenpipe import (
    Aborted,
    FinishReason,
    GPUModelRunner,
    Mismatch,
    ModelRunner,
    RankLost,
    Released,
    Rescheduled,
    SamplingParams,
    StepBind,
    runner_for,
)
from tokenpipe.runners.probe import ProbeModel

pytestmark = pytest.mark.usefixtures("paddle")
GREEDY = SamplingParams(temperature=0.0, max_tokens=30)
LONG = SamplingParams(temperature=0.0, max_tokens=80)


def bind_of(engine: Engine, which: int, slot: int, dp: int = 0) -> StepBind:
    request = engine.requests()[which]
    with engine.pipe.commands(dp) as commands:
        handle = commands.bind(request, slot)
    return StepBind(
        handle,
        request.internal_id,
        0,
        request.prompt_token_ids,
        max_tokens=request.params.max_tokens,
        params=request.params,
    )


@pytest.mark.case("B32")
@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_streams_are_the_same_however_often_they_are_preempted(
    runtime_dir: Path, depth: int, speculative: bool
) -> None:
    def make(dp: int, tp: int) -> ModelRunner:
        return runner_for("cpu")(
            SpeculativeModel(dp) if speculative else LoggedModel([]), depth=depth
        )

    def play(engine: Engine, chance: float) -> Shuffler:
        prompts = [(i + 1, i + 2) for i in range(6)]
        shuffler = Shuffler(engine, seed=depth, chance=chance)
        askers = engine.ask(prompts, LONG)
        shuffler.take(engine.events)
        for _ in range(3000):
            shuffler.turn()
            if shuffler.ended == 6 and not shuffler.places:
                break
        for asking in askers:
            asking.join(10)
            assert asking.tokens == ProbeModel().expected(asking.prompt, 80)
            assert asking.outputs[-1].finish_reason == FinishReason.LENGTH
        # By the worker's word each time, and never because that did not come.
        assert {event.reason for event in engine.seen(Released)} == {"drained"}
        assert {event.reason for event in engine.seen(Rescheduled)} <= {"preempted"}
        return shuffler

    with Engine(runtime_dir, make, data_parallel_size=2, slots_per_rank=4) as engine:
        assert play(engine, 0.0).preempted == 0
    with Engine(runtime_dir, make, data_parallel_size=2, slots_per_rank=4) as engine:
        shuffled = play(engine, 0.25)
        assert len(engine.seen(Rescheduled)) >= 10
    assert shuffled.moved() == (True, True)


@pytest.mark.case("B32")
def test_a_seeded_draw_survives_preemption(runtime_dir: Path) -> None:
    def play(chance: float) -> list[list[int]]:
        params = SamplingParams(temperature=3.0, top_p=0.95, seed=12, max_tokens=30)
        with Engine(runtime_dir, data_parallel_size=2, slots_per_rank=4) as engine:
            shuffler = Shuffler(engine, seed=1, chance=chance)
            askers = engine.ask([(i + 1,) for i in range(4)], params)
            shuffler.take(engine.events)
            for _ in range(3000):
                shuffler.turn()
                if shuffler.ended == 4 and not shuffler.places:
                    break
            for asking in askers:
                asking.join(10)
            assert bool(shuffler.preempted) == bool(chance)
            return [asking.tokens for asking in askers]

    calm = play(0.0)
    assert all(len(tokens) == 30 for tokens in calm)
    assert play(0.25) == calm


@pytest.mark.case("B31")
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_all_are_aborted_and_every_slot_comes_free(runtime_dir: Path, depth: int) -> None:
    with Engine(runtime_dir, depth=depth, slots_per_rank=4) as engine:
        askers = engine.ask([(i + 1,) for i in range(4)], SamplingParams(max_tokens=10_000))
        binds = [bind_of(engine, i, i) for i in range(4)]
        engine.plan(0, binds)
        engine.plan(0)
        with engine.pipe.commands() as commands:
            for request in engine.requests():
                commands.abort(request)
        engine.plan(0, frees=[bind.handle for bind in binds])  # and no traffic after it
        engine.until(lambda: len(engine.seen(Released)) == 4)
        assert {event.reason for event in engine.seen(Released)} == {"drained"}
        assert len(engine.seen(Aborted)) == 4
        for asking in askers:
            asking.join(10)
            assert asking.outputs[-1].finish_reason == FinishReason.ABORT


@pytest.mark.case("B35")
def test_requests_of_one_id_are_two(runtime_dir: Path) -> None:
    with Engine(runtime_dir, slots_per_rank=4) as engine:
        one, two = engine.ask([(5,), (6,)], GREEDY)
        assert {request.external_id for request in engine.requests()} == {"same"}
        prompts = [request.prompt_token_ids for request in engine.requests()]
        engine.plan(0, [bind_of(engine, i, i) for i in range(2)])
        for _ in range(30):
            engine.plan(0)
        engine.until(lambda: not (one.is_alive() or two.is_alive()))
        assert sorted(prompts) == [(5,), (6,)]
        for asking in (one, two):
            assert asking.tokens == ProbeModel().expected(asking.prompt, 30)
            assert {output.request_id for output in asking.outputs} == {"same"}


@pytest.mark.case("B36")
@pytest.mark.parametrize("depth", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in (2, 3))])
def test_late_rows_of_a_slot_go_to_nobody_else(runtime_dir: Path, depth: int) -> None:
    """`a`, `b`, `a` again in one slot, each bound while rows of the one before are under way."""
    with Engine(runtime_dir, depth=depth, slots_per_rank=1) as engine:
        short = SamplingParams(temperature=0.0, max_tokens=3)
        askers = [engine.ask([prompt], short)[0] for prompt in ((1,), (2,), (1,))]
        gone: list[int] = []
        for which in range(3):
            if gone:
                engine.until(lambda n=which: len(engine.seen(Released)) >= n - 1)  # type: ignore[misc]
                with engine.pipe.commands() as commands:
                    commands.abort(gone[-1])  # its outcome frees the slot for the next at once
            bind = bind_of(engine, which, 0)
            engine.plan(0, [bind], gone[-1:])
            for _ in range(2 if which < 2 else 8):
                engine.plan(0)
            gone.append(bind.handle)
        engine.plan(0, [], gone[-1:])
        engine.until(lambda: len(engine.seen(Released)) == 3)
        for asking in askers:
            asking.join(10)
            assert asking.tokens == ProbeModel().expected(asking.prompt, len(asking.tokens))
        assert len(askers[2].tokens) == 3


@pytest.mark.case("B30")
def test_only_the_drained_row_hands_a_request_back(runtime_dir: Path) -> None:
    """A preempted slot says nothing for a step, then one more token: that token is kept."""

    class Silent(SpeculativeModel):
        def _accepted(self, rows):  # type: ignore[no-untyped-def]
            sampled = super()._accepted(rows)
            for i, row in enumerate(rows):
                quiet = len(row.state) > 4 and not row.extra
                if quiet:  # the step brings nothing for it, once
                    row.extra = b"quiet"
                    row.state = row.state[: -int(sampled.counts[i])]
                    sampled.counts[i] = 0
            return sampled

    def make(dp: int, tp: int) -> ModelRunner:
        return runner_for("cpu")(Silent(3), depth=1)

    with Engine(runtime_dir, make, slots_per_rank=1) as engine:
        (asking,) = engine.ask([(7, 8)], SamplingParams(max_tokens=10_000))
        bind = bind_of(engine, 0, 0)
        engine.plan(0, [bind])
        with engine.pipe.commands() as commands:
            commands.preempt(bind.handle)
        for _ in range(3):
            engine.plan(0)
        for _ in range(10):
            engine.turn()
        assert not engine.seen(Rescheduled)  # silence, and tokens, hand nothing back
        engine.plan(0, frees=[bind.handle])
        engine.until(lambda: engine.seen(Rescheduled))
        (event,) = engine.seen(Rescheduled)
        ids = event.output_token_ids
        assert ids == ProbeModel().expected((7, 8), len(ids)) and len(ids) >= 4
        with engine.pipe.commands() as commands:
            commands.abort(engine.requests()[0])
        engine.until(lambda: engine.seen(Aborted))
        engine.until(lambda: not asking.is_alive())
        assert asking.tokens == ids


@pytest.mark.case("B26")
@pytest.mark.parametrize("policy", ["leader", "verify"])
@pytest.mark.parametrize("speculative", [False, True])
def test_every_tp_rank_calls_and_each_token_comes_once(
    runtime_dir: Path, policy: str, speculative: bool
) -> None:
    def make(dp: int, tp: int) -> ModelRunner:
        model = SpeculativeModel(5) if speculative else LoggedModel([])
        return runner_for("cpu")(model, depth=1)

    params = SamplingParams(temperature=0.0, logprobs=2, max_tokens=30)
    with Engine(
        runtime_dir, make, tensor_parallel_size=4, tp_policy=policy, slots_per_rank=2
    ) as engine:
        askers = engine.ask([(3,), (4, 5)], params)
        binds = [bind_of(engine, i, i) for i in range(2)]
        engine.plan(0, binds)
        for _ in range(12):
            engine.plan(0)
        with engine.pipe.commands() as commands:
            commands.preempt(binds[0].handle)
        engine.plan(0, frees=[binds[0].handle])
        engine.until(lambda: any(e.handle == binds[0].handle for e in engine.seen(Released)))
        assert len([e for e in engine.seen(Released) if e.handle == binds[0].handle]) == 1
        for _ in range(30):
            engine.plan(0)
        with engine.pipe.commands() as commands:
            commands.abort(engine.requests()[0])
        engine.until(lambda: not any(asking.is_alive() for asking in askers))
        first = engine.requests()[0].prompt_token_ids
        for asking in askers:
            assert asking.tokens == ProbeModel().expected(asking.prompt, len(asking.tokens))
            assert asking.prompt == first or len(asking.tokens) == 30
            if not speculative:
                for output in asking.outputs:
                    assert len(output.logprobs or ()) == len(output.token_ids)
        assert not engine.seen(Mismatch)
    steps = {worker.runner.steps for worker in engine.workers if worker.runner}
    assert len(steps) == 1


@pytest.mark.case("B27")
def test_a_tp_rank_that_samples_something_else_is_named_and_not_followed(
    runtime_dir: Path,
) -> None:
    made = threading.Lock()

    def make(dp: int, tp: int) -> ModelRunner:
        with made:
            model = SpeculativeModel(1) if tp == 0 else Differs(1)
            return runner_for("cpu")(model, depth=1)

    class Differs(SpeculativeModel):
        def decode(self, rows, last, lengths):  # type: ignore[no-untyped-def]
            sampled = super().decode(rows, last, lengths)
            sampled.tokens[:, 0] += 1
            return sampled

    with Engine(
        runtime_dir, make, tensor_parallel_size=2, tp_policy="verify", slots_per_rank=1
    ) as engine:
        (asking,) = engine.ask([(9,)], GREEDY)
        bind = bind_of(engine, 0, 0)
        engine.plan(0, [bind])
        for _ in range(30):
            engine.plan(0)
        engine.until(lambda: engine.seen(Mismatch) and not asking.is_alive())
        (mismatch,) = engine.seen(Mismatch)
        assert (mismatch.tp_rank, mismatch.step, mismatch.handle) == (1, 2, bind.handle)
        assert asking.tokens == ProbeModel().expected((9,), 30)


def test_a_device_that_fails_hands_its_requests_back_with_the_reason(runtime_dir: Path) -> None:
    calls = FakeCalls()
    engine = Engine(
        runtime_dir,
        lambda dp, tp: GPUModelRunner(LoggedModel(calls.log), calls=calls),
        slots_per_rank=2,
    )
    with engine:
        (asking,) = engine.ask([(1,)], GREEDY)
        engine.plan(0, [bind_of(engine, 0, 0)])
        for _ in range(3):
            engine.plan(0)
        engine.until(lambda: len(calls.log) > 12)
        calls.fail = "wait"
        engine.plan(0)
        engine.until(lambda: engine.seen(RankLost) and engine.seen(Rescheduled))
        assert "wait failed" in engine.seen(RankLost)[0].reason
        ids = engine.seen(Rescheduled)[0].output_token_ids
        assert ids == ProbeModel().expected((1,), len(ids)) and ids
        with engine.pipe.commands() as commands:
            commands.abort(engine.requests()[0])
        engine.until(lambda: not asking.is_alive())
        (worker,) = engine.workers
        worker.join(10)
        assert "wait failed" in str(worker.error)
        worker.error = None


def test_a_row_that_fails_ends_its_request_with_an_error(runtime_dir: Path) -> None:
    def make(dp: int, tp: int) -> ModelRunner:
        return runner_for("cpu")(Breaks())

    class Breaks(ProbeModel):
        def decode(self, rows, last, lengths):  # type: ignore[no-untyped-def]
            logits = super().decode(rows, last, lengths)
            return logits * self._paddle.to_tensor([[1.0], [float("nan")]])[: len(rows)]

    with Engine(runtime_dir, make, slots_per_rank=2) as engine:
        askers = engine.ask([(1,), (2,)], GREEDY)
        engine.plan(0, [bind_of(engine, i, i) for i in range(2)])
        for _ in range(40):
            engine.plan(0)
        engine.until(lambda: not any(asking.is_alive() for asking in askers))
        ends = {asking.prompt: asking.outputs[-1] for asking in askers}
        good, bad = (request.prompt_token_ids for request in engine.requests())
        assert ends[good].finish_reason == FinishReason.LENGTH
        assert ends[bad].finish_reason == FinishReason.ERROR
        assert "refused a token" in (ends[bad].error or "")


def test_an_engine_sees_how_far_its_workers_are(runtime_dir: Path) -> None:
    with Engine(runtime_dir, tensor_parallel_size=2, slots_per_rank=1) as engine:
        (lane,) = engine.lanes
        assert lane.unread == 0
        engine.plan(0)
        engine.plan(0)
        assert lane.unread >= 1  # nobody but `turn` reads acknowledgements
        engine.until(lambda: lane.unread == 0)
