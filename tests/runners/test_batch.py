"""Who runs, in which order, and how long."""

from __future__ import annotations

import pytest

from tests.runners.rig import bind, handle
from tokenpipe.errors import SlotBusy
from tokenpipe.runners.batch import RunnerBatch
from tokenpipe.runners.model import Row


def test_a_decode_batch_is_the_same_object_until_somebody_comes_or_goes() -> None:
    freed: list[int] = []
    batch = RunnerBatch(lambda row: freed.append(row.slot))
    batch.admit(bind(0, (1, 2), tokens=3))
    batch.admit(bind(1, tokens=9))
    fresh = batch.fresh()
    for row in fresh:
        row.produced = 1
    batch.join(fresh)
    decode_batch = batch.decode_batch()
    assert decode_batch.rows == fresh and decode_batch.lengths.tolist() == [3, 2]
    decode_batch.taken += 1
    assert batch.decode_batch() is decode_batch and decode_batch.lengths.tolist() == [4, 3]
    decode_batch.taken += 1  # slot 0 has its three tokens
    (left,) = batch.decode_batch().rows
    assert (left.slot, left.produced, left.length) == (1, 3, 4)
    assert [row.produced for row in fresh] == [3, 3]
    batch.free(handle(1))
    assert batch.decode_batch().rows == [] and freed == [1] and len(batch) == 1
    batch.free(handle(0))
    assert freed == [1, 0] and not batch.due


@pytest.mark.case("B36")
def test_a_free_that_comes_twice_leaves_the_slots_next_row_alone() -> None:
    batch = RunnerBatch(lambda row: None)
    first, second = handle(3, generation=1), handle(3, generation=2)
    batch.admit(bind(3, generation=1))
    with pytest.raises(SlotBusy, match=f"slot 3 runs {first}; free it before {second}"):
        batch.admit(bind(3, generation=2))
    batch.free(first)
    batch.admit(bind(3, generation=2))
    batch.free(first)
    (row,) = batch.fresh()
    assert (row.handle, len(batch)) == (second, 1)


def test_a_row_says_where_it_stands() -> None:
    row = Row.of(bind(2, (5, 6), tokens=7, output=(8, 9, 10)))
    assert (row.slot, row.length, row.left) == (2, 5, 4)
    row.produced = 3
    assert (row.length, row.left) == (8, 1)
    row.failed = True
    assert row.left == 0
