"""A launched step: its results come off the device in one go, and go to their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.runners.rig import FakeCalls, FakeCpu, bind, handle
from tokenpipe.extras import PromptLogprobs, RowExtras
from tokenpipe.runners import Row, Sampled
from tokenpipe.runners.devices import FACTS, Device
from tokenpipe.runners.in_flight import InFlightStep
from tokenpipe.types import RowStatus
from tokenpipe.wire import pack_extras


class Tensor:
    """Values on a device that only the fake's copies can read."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)
        self.shape = self._values.shape

    def numpy(self) -> np.ndarray[Any, Any]:
        return self._values

    def __dlpack__(self) -> None:
        raise AssertionError("read without a copy")

    def __len__(self) -> int:
        raise AssertionError("read without a copy")


def launch(
    slots: int,
    *parts: Sampled,
    calls: FakeCalls | None = None,
    failed: dict[int, str] | None = None,
) -> InFlightStep:
    rows = [Row.of(bind(slot, tokens=3)) for slot in range(slots)]
    handles = np.array([row.handle for row in rows], np.int64)
    return InFlightStep(
        rows, handles, parts, Device(FACTS["gpu"], 0, calls or FakeCalls()), failed or {}
    )


def test_one_id_a_row_is_one_copy() -> None:
    calls = FakeCalls()
    step = launch(2, Sampled(Tensor([5, 6])), calls=calls)
    assert step.counted and calls.log.count("copy") == 1
    step.drained.append(99)
    rows = step.arrive()
    assert rows.handles.tolist() == [handle(0), handle(1)] and rows.tokens.tolist() == [5, 6]
    assert (rows.counts, rows.logprobs, rows.status, rows.extras) == (None, None, None, None)
    assert rows.drained == [99]


@pytest.mark.parametrize(
    ("part", "on_host", "in_place"),
    [
        (Sampled(Tensor([5])), True, True),
        (Sampled(np.array([5])), False, True),
        (Sampled(Tensor([5])), False, False),
        (Sampled(Tensor([[5, 6]]), Tensor([2])), True, False),
    ],
)
def test_only_plain_ids_on_the_host_are_there_in_place(
    part: Sampled, on_host: bool, in_place: bool
) -> None:
    assert launch(1, part, calls=FakeCpu() if on_host else FakeCalls()).in_place is in_place


def test_tensors_beside_the_tokens_are_copied_with_the_step() -> None:
    calls = FakeCalls()
    first = Sampled(
        Tensor([5, 6]),
        extras={
            1: RowExtras(
                prompt_logprobs=PromptLogprobs(
                    1, Tensor([[7]]), Tensor(np.array([[-1.5]], np.float32)), Tensor([2])
                ),
                pooled=Tensor(np.array([1, 2], np.float32)),
                sampling_masks=[Tensor([3, 4])],
                draft_token_ids=[6],
                custom=b"x",
            )
        },
    )
    beside = {0: RowExtras(draft_token_ids=Tensor([8, 1]))}
    second = Sampled(Tensor([[8, 9]]), Tensor([2]), extras=beside)
    step = launch(3, first, second, calls=calls, failed={handle(3): "out of cache"})
    assert calls.log.count("copy") == 9 and calls.log[-1] == "record"  # behind all of them
    rows = step.arrive()
    assert rows.handles.tolist() == [handle(slot) for slot in range(4)]
    assert rows.tokens.tolist() == [5, 6, 8, 9] and rows.counts.tolist() == [1, 1, 2, 0]
    assert rows.status.tolist() == [RowStatus.OK] * 3 + [RowStatus.ERROR]
    assert rows.extras is not None and sorted(rows.extras) == [1, 2, 3]
    expected = RowExtras(
        PromptLogprobs(1, [[7]], [[-1.5]], [2]), [1, 2], [[3, 4]], [6], custom=b"x"
    )
    assert pack_extras(rows.extras[1], 1) == pack_extras(expected, 1)
    assert pack_extras(rows.extras[2], 2) == pack_extras(RowExtras(draft_token_ids=[8, 1]), 2)
    assert rows.extras[3] == RowExtras(error="out of cache")


def test_rows_are_credited_with_what_they_got() -> None:
    step = launch(2, Sampled(Tensor([[8, 9], [1, -1]]), Tensor([2, 1])))
    assert not step.counted
    counts = step.arrive().counts
    assert counts.tolist() == [2, 1]
    assert not step.credit(counts)
    assert step.credit([1, 0])  # the first row has its three tokens
