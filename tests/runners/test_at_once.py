"""A CPU runner's steady step: published out of the model's own buffer, and what ends that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runners.rig import FakeCalls, FakeCpu, LoggedModel, Rig, bind, handle
from tests.worker.far import Far
from tokenpipe.errors import FrameTooLarge, LaneFull, RowError, RowsFailed, RunnerFailed
from tokenpipe.runners import Row, Sampled
from tokenpipe.runners.devices import PaddleCalls
from tokenpipe.runners.framework import load_paddle

pytestmark = pytest.mark.usefixtures("paddle")


class Counter:
    """Samples 10 x slot + step into one buffer that it fills again each time."""

    def __init__(self) -> None:
        self.buffer = np.zeros(8, np.int64)
        self.steps = 0
        self.refuse: set[int] = set()
        self.wide_at = 0

    def prefill(self, rows: Sequence[Row]) -> Sampled:
        return Sampled(np.array([10 * row.slot for row in rows]))

    def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Sampled:
        assert last is None and lengths is None
        if self.refuse & {row.handle for row in rows}:
            raise RowsFailed(self.refuse, "out of cache")
        self.steps += 1
        tokens = self.buffer[: len(rows)]
        tokens[:] = [10 * row.slot + self.steps for row in rows]
        if self.steps == self.wide_at:
            return Sampled(tokens[:, None], np.ones(len(rows), np.int64))
        return Sampled(tokens)

    def free(self, row: Row) -> None:
        pass


def started(slots: int = 2, tokens: int = 1000) -> tuple[Rig, Counter]:
    model = Counter()
    rig = Rig("cpu", model, 0)
    rig.change([bind(slot, tokens=tokens) for slot in range(slots)])
    rig.step()
    return rig, model


def told(slot: int, steps: int) -> list[int]:
    return [10 * slot + step for step in range(steps + 1)]


def test_nothing_is_copied_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, model = started()
    given: list[Any] = []
    publish = rig.pub.publish

    def kept(step: int, handles: Any, tokens: Any, *args: Any, **more: Any) -> None:
        given.append(tokens)
        publish(step, handles, tokens, *args, **more)

    monkeypatch.setattr(rig.pub, "publish", kept)
    rig.step(5)
    assert all(np.shares_memory(tokens, model.buffer) for tokens in given) and len(given) == 5
    assert rig.pub.tokens == {handle(slot): told(slot, 5) for slot in range(2)}
    assert [step.step for step in rig.pub.steps] == [1, 2, 3, 4, 5, 6]


def test_what_a_full_lane_refuses_is_published_before_the_buffer_is_filled_again() -> None:
    rig, model = started()
    rig.step()
    rig.pub.refuse = LaneFull("full")
    rig.step()
    assert rig.log[-3:] == ["publish 3", "wait for room", "publish 3"]
    assert rig.pub.tokens == {handle(slot): told(slot, 2) for slot in range(2)}
    assert model.steps == 2, "a step ran while one was not published"


def test_a_frame_that_no_lane_can_carry_fails_the_rank_at_once() -> None:
    rig, _ = started()
    rig.pub.refuse = FrameTooLarge("larger than the bound")
    with pytest.raises(FrameTooLarge, match="larger than the bound"):
        rig.loop.run()
    assert rig.pub.failed


def test_rows_that_the_model_gives_up_end_and_the_others_go_on() -> None:
    rig, model = started(3)
    rig.step()
    model.refuse = {handle(1)}
    rig.step(3)
    assert rig.pub.errors == [handle(1)]
    assert rig.pub.tokens[handle(0)] == told(0, 4)
    assert rig.pub.tokens[handle(1)] == told(1, 1)
    assert model.steps == 4 and not rig.pub.failed


def test_another_shape_takes_the_long_way_and_back() -> None:
    rig, model = started()
    model.wide_at = 3
    rig.step(6)
    assert model.steps == 6
    assert rig.pub.tokens == {handle(slot): told(slot, 6) for slot in range(2)}


def test_markers_and_newcomers_are_taken_in_between() -> None:
    rig, _ = started(2, tokens=5)
    rig.step()
    rig.change([bind(2, tokens=3)], [handle(0)])
    rig.step(6)
    assert rig.pub.drained == [handle(0)]
    assert len(rig.pub.tokens[handle(0)]) == 2
    assert len(rig.pub.tokens[handle(1)]) == 5 and len(rig.pub.tokens[handle(2)]) == 3


def test_ids_on_a_device_are_copied_off_it() -> None:
    """A model may compute elsewhere than its runner: its ids do not go out in place."""

    class Elsewhere(FakeCpu):
        def on_host(self, tensor: Any) -> bool:
            return False

        def read(self, host: Any) -> Any:
            return FakeCalls.read(self, host)

    class Tensors(Counter):
        def prefill(self, rows: Sequence[Row]) -> Sampled:
            return Sampled(tensor(super().prefill(rows).tokens))

        def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Sampled:
            return Sampled(tensor(super().decode(rows, last, lengths).tokens))

    tensor = load_paddle("cpu").to_tensor
    rig = Rig("cpu", Tensors(), calls=Elsewhere())
    rig.change([bind(slot) for slot in range(2)])
    rig.step(4)
    assert rig.log.count("copy") == 4 and all(host.arrived for host in rig.calls.hosts)
    assert rig.pub.tokens == {handle(slot): told(slot, 3) for slot in range(2)}


def test_a_model_may_go_over_from_logits_to_ids() -> None:
    class Both(LoggedModel):
        def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Any:
            logits = super().decode(rows, *self.fed(rows, last, lengths))
            return logits if self.forwards < 4 else Sampled(logits.argmax(axis=-1))

        def fed(self, rows: Sequence[Row], last: Any, lengths: Any) -> tuple[Any, Any]:
            if self.forwards < 4:
                return last, lengths
            assert last is None and lengths is None, "its own ids are not fed back"
            ids = [pub.tokens[row.handle] for row in rows]
            tensor = self._paddle.to_tensor
            return tensor([t[-1] for t in ids]), np.array([1 + len(t) for t in ids])

    rig = Rig.of("cpu", 0, Both)
    pub, model = rig.pub, rig.model
    rig.change([bind(0, tokens=9)])
    rig.finish()
    assert pub.tokens == {handle(0): model.expected((1,), 9)}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_tensor_is_read_where_it_lies(paddle: Any, runtime_dir: Path, dtype: str) -> None:
    class Tensors(Counter):
        def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Sampled:
            ids = paddle.to_tensor(super().decode(rows, last, lengths).tokens)
            if self.steps == 4:  # not as simple: the packer is given a copy
                return Sampled(paddle.stack([ids, -ids], axis=1).astype(dtype)[:, 0])
            return Sampled(ids.astype(dtype))

    class Calls(PaddleCalls):
        def read(self, host: Any) -> Any:
            raise AssertionError("an array was made of it")

    far = Far(runtime_dir)
    with far.publisher() as pub:
        rig = Rig("cpu", Tensors(), calls=Calls(paddle), pub=pub)
        rig.change([bind(slot) for slot in range(3)])
        rig.step(7)
        far.until(lambda: not pub.unacknowledged, pub.poll)
        assert far.beside(pub.close) == 0
    steps = far.steps()
    assert [step.tokens.tolist() for step in steps] == [[n, 10 + n, 20 + n] for n in range(7)]
    assert [step.positions.tolist() for step in steps] == [[n] * 3 for n in range(7)]
    far.close()


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda ids: Sampled(ids.astype(np.float32)), "tokens: float32, needs int32 or int64"),
        (lambda ids: Sampled(ids[:-1]), "tokens has 1 entries"),
        (lambda ids: None, "TypeError|ValueError|AttributeError"),
    ],
)
def test_what_are_no_ids_fails_the_rank_and_says_why(
    paddle: Any, runtime_dir: Path, made: Callable[[Any], Any], why: str
) -> None:
    class Wrong(Counter):
        def decode(self, rows: Sequence[Row], last: Any, lengths: Any) -> Any:
            ids = super().decode(rows, last, lengths).tokens
            return made(ids) if self.steps > 2 else Sampled(ids)

    far = Far(runtime_dir)
    with far.publisher() as pub:
        rig = Rig("cpu", Wrong(), calls=PaddleCalls(paddle), pub=pub)
        rig.change([bind(slot) for slot in range(2)])
        rig.step(3)
        with pytest.raises((RunnerFailed, RowError), match=why):
            rig.step()
        assert pub.last_step == 3
        assert far.beside(pub.close) == 0
    far.close()
