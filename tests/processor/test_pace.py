"""Stream intervals: fewer outputs, with the same in them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.processor.rig import LANE, Rig, Row
from tokenpipe import _core
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


def made_at(frame: bytes, made_ns: int) -> bytes:
    """Return the frame with another time."""
    header, columns = _core.unpack_step(frame)
    return _core.pack_step((*header[:-1], made_ns), columns)


@pytest.mark.case("F12")
@pytest.mark.parametrize("made_ns", [1_767_225_600 * 10**9, 1 << 62, 1 << 63, (1 << 64) - 1, 0, 1])
@pytest.mark.parametrize("at", [0, 3])
def test_a_workers_clock_does_not_decide_when_output_is_sent(made_ns: int, at: int) -> None:
    rig = Rig()
    handle = rig.bind(9, stream_interval_ms=500)
    sizes = []
    for n in range(30):
        frame = rig.frame([Row(handle, [3 + n])])
        rig.processor.feed(0, 0, made_at(frame, made_ns) if n == at else frame, rig.now)
        sizes += outputs(rig)
        if rig.processor.next_deadline <= rig.now:
            rig.processor.tick(rig.now)
        sizes += outputs(rig)
        rig.now += 0.1
    assert sum(sizes) >= 26 and max(sizes) <= 6
    assert rig.processor.counters["clock_ahead"] == (made_ns > 1)


@pytest.mark.case("F12")
def test_the_time_in_an_output_frame_has_come() -> None:
    rig = Rig()
    handle = rig.bind(9)
    now_ns = int(rig.now * 1e9)
    for ahead_ns, shown_ns in ((1 << 62, 0), (5 * 10**8, 5 * 10**8), (-7, -7)):
        frame = made_at(rig.frame([Row(handle, [3])]), now_ns + ahead_ns)
        rig.processor.feed(0, 0, frame, rig.now)
        sent = rig.processor.flush(0, LANE)
        assert sent is not None and OutputFrame.unpack(sent).mono_ns == now_ns + shown_ns


def test_nothing_waits_for_a_client_that_went() -> None:
    rig = Rig()
    handle = rig.bind(9, stream_interval=5, stream_interval_ms=500)
    rig.feed(Row(handle, [3]), Row(handle, [4]))
    rig.command(CloseClient(0))
    rig.feed(Row(handle, [5] * 9))
    rig.now += 1
    rig.processor.tick(rig.now)
    assert rig.processor.dirty_clients() == []
