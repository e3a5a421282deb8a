"""Stream intervals: fewer outputs, with the same in them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.processor.rig import LANE, Rig, Row
from tokenpipe.processor.deadlines import NEVER
from tokenpipe.types import RowStatus
from tokenpipe.wire import (
    Abort,
    CloseClient,
    HandleFinished,
    HandleRescheduled,
    OutputFrame,
    Preempt,
)

LETTERS = range(3, 60)  # none of them ends a request


def outputs(rig: Rig) -> list[int]:
    """Flush, and return how many tokens each row of it had."""
    frame = rig.processor.flush(0, LANE)
    if frame is None:
        return []
    rig.clients[0].apply(frame)
    counts: list[int] = OutputFrame.unpack(frame).counts.tolist()
    return counts


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.integers(0, 5), min_size=1, max_size=20),
    interval=st.integers(1, 9),
    k=st.sampled_from([-1, 1]),
    end=st.sampled_from(["eos", "length", "abort", "preempt", "slow", "none"]),
)
def test_outputs_have_their_interval_and_all_arrives(
    rows: list[int], interval: int, k: int, end: str
) -> None:
    rig = Rig()
    total = sum(rows)
    most = max(total, 1) if end == "length" else 1000
    handle = rig.bind(9, max_tokens=most, stream_interval=interval)
    sizes: list[int] = []
    token = iter(list(LETTERS) * 9)
    for n in rows:
        rig.feed(Row(handle, [next(token) for _ in range(n)], k=k))
        sizes += outputs(rig)
    body = sizes[1:-1] if end == "length" else sizes[1:]
    assert all(size >= interval for size in body)
    sent = sum(sizes)
    match end:
        case "eos":
            rig.feed(Row(handle, [2], k=k))
        case "abort":
            rig.command(Abort(handle))
        case "preempt":
            rig.command(Preempt(handle))
            rig.feed(Row(handle, (), RowStatus.DRAINED))
        case "slow":
            rig.processor.end_slow_client(0, rig.now)
    rig.flush()
    got = rig.stream(9)
    (wanted,) = {total + 1} if end == "eos" else {sent} if end in ("slow", "none") else {total}
    assert len(got.tokens) == wanted
    assert rig.processor.unsent_bytes(0) == 0
    if end == "preempt":
        assert isinstance(rig.ended()[0], HandleRescheduled)
    elif end == "length" and total:
        assert isinstance(rig.ended()[0], HandleFinished)


def test_time_between_outputs() -> None:
    rig = Rig()
    handle = rig.bind(9, stream_interval_ms=500)
    start = rig.now
    rig.feed(Row(handle, [3]))
    assert outputs(rig) == [1]
    rig.now = start + 0.1
    rig.feed(Row(handle, [4]))
    rig.now = start + 0.2
    rig.feed(Row(handle, [5]))
    assert outputs(rig) == []
    deadline = rig.processor.next_deadline
    assert deadline is not None and deadline == pytest.approx(start + 0.5, abs=1e-5)
    rig.now = deadline
    rig.processor.tick(rig.now)
    assert outputs(rig) == [2]
    rig.now = start + 2
    rig.processor.tick(rig.now)
    assert rig.processor.next_deadline == NEVER
    rig.feed(Row(handle, [6]))
    assert outputs(rig) == [1]
    rig.feed(Row(handle, [2]))
    assert outputs(rig) == [1], "the end waits for nothing"


def test_nothing_waits_for_a_client_that_went() -> None:
    rig = Rig()
    handle = rig.bind(9, stream_interval=5, stream_interval_ms=500)
    rig.feed(Row(handle, [3]), Row(handle, [4]))
    rig.command(CloseClient(0))
    rig.feed(Row(handle, [5] * 9))
    rig.now += 1
    rig.processor.tick(rig.now)
    assert rig.processor.dirty_clients() == []
