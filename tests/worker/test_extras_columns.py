"""What a model gives beside its tokens: off the device with the rest, and to its row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.runners.rig import FakeCalls
from tokenpipe.errors import RowError
from tokenpipe.extras import PromptLogprobs, RowAnnex
from tokenpipe.runners import Sampled
from tokenpipe.runners.devices import FACTS, Device
from tokenpipe.runners.in_flight import InFlightStep
from tokenpipe.wire import pack_annex
from tokenpipe.worker.extras_columns import annex_columns


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


class Kept:
    """Keeps what is published."""

    def publish(self, *args: Any, **named: Any) -> None:
        self.args, self.named = args, named


def test_tensors_in_annexes_are_copied_with_the_step() -> None:
    calls = FakeCalls()
    device = Device(FACTS["gpu"], 0, calls)
    first = Sampled(
        Tensor([5, 6]),
        annexes={
            1: RowAnnex(
                prompt_logprobs=PromptLogprobs(
                    1, Tensor([[7]]), Tensor(np.array([[-1.5]], np.float32)), Tensor([2])
                ),
                pooled=Tensor(np.array([1, 2], np.float32)),
                sampling_masks=[Tensor([3, 4])],
                draft_token_ids=[6],
                extra=b"x",
            )
        },
    )
    second = Sampled(Tensor([[8, 9]]), annexes={0: RowAnnex(draft_token_ids=Tensor([8, 1]))})
    launched = InFlightStep(4, [], np.array([11, 12, 13]), [first, second], device)
    assert calls.log.count("copy") == 8 and calls.log[-1] == "record"  # behind all of them
    pub = Kept()
    launched.failed.append(14)
    launched.publish(pub)  # type: ignore[arg-type]
    assert pub.args[0] == 4 and pub.args[1].tolist() == [11, 12, 13, 14]
    assert pub.args[2].tolist() == [5, 6, 8, 9]
    annexes, counts = pub.named["annexes"], pub.named["counts"]
    assert sorted(annexes) == [1, 2] and counts.tolist() == [1, 1, 2, 0]
    expected = RowAnnex(PromptLogprobs(1, [[7]], [[-1.5]], [2]), [1, 2], [[3, 4]], [6], extra=b"x")
    assert pack_annex(annexes[1], 1) == pack_annex(expected, 1)
    assert pack_annex(annexes[2], 2) == pack_annex(RowAnnex(draft_token_ids=[8, 1]), 2)
    lengths, raw = annex_columns(annexes, 4, counts)
    assert lengths.tolist() == [0, len(pack_annex(annexes[1], 1)), 18 - 5, 0]
    assert len(raw) == lengths.sum()


def test_a_step_without_them_says_nothing_of_them() -> None:
    device = Device(FACTS["gpu"], 0, FakeCalls())
    pub = Kept()
    InFlightStep(4, [], np.array([11]), [Sampled(Tensor([[5, 6]]))], device).publish(pub)  # type: ignore[arg-type]
    assert "annexes" not in pub.named


@pytest.mark.parametrize("row", [-1, 2, 1 << 40])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    with pytest.raises(RowError, match=f"annexes: there is no row {row} of 2"):
        annex_columns({row: RowAnnex()}, 2, None)


def test_what_does_not_fit_is_named_by_its_row() -> None:
    with pytest.raises(RowError, match=r"annexes\[1\]: sampling_masks: 2 entries for a row of 1"):
        annex_columns({1: RowAnnex(sampling_masks=[[1], [2]])}, 2, None)
    with pytest.raises(RowError, match=r"annexes\[0\]: pooled"):
        annex_columns({0: RowAnnex(pooled=object())}, 2, [0, 1])
