"""Windows are pure: whatever comes, in whatever order, goes out once and in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpipe import _core
from tokenpipe._core import FRAME_OVERHEAD, SendWindow
from tokenpipe.transport import lane_messages as messages
from tokenpipe.transport.window import Gap, ReceiveWindow


def frames(count: int) -> list[bytes]:
    return [str(seq).encode() for seq in range(1, count + 1)]


@given(st.lists(st.integers(1, 30), max_size=120))
def test_any_order_and_any_repeat_is_put_right(arrivals: list[int]) -> None:
    window = ReceiveWindow(1, 1 << 20)
    out: list[bytes | Gap] = []
    for seq in arrivals:
        window.accept(seq, str(seq).encode(), out)
    prefix = next(n for n in range(1, 32) if n not in arrivals)
    assert out == frames(prefix - 1)
    if max(arrivals, default=0) >= prefix:
        first, last = window.missing() or (0, 0)
        assert first == prefix and not set(range(first, last + 1)) & set(arrivals)
    else:
        assert window.missing() is None
    unique = len(set(arrivals))
    assert window.duplicates == len(arrivals) - unique


@given(st.sets(st.integers(1, 30)), st.integers(1, 31), st.integers(1, 31))
def test_what_is_given_up_is_named_and_the_rest_is_kept(
    arrived: set[int], next_seq: int, first_retained: int
) -> None:
    window = ReceiveWindow(1, 1 << 20)
    out: list[bytes | Gap] = []
    for seq in sorted(arrived):
        window.accept(seq, str(seq).encode(), out)
    window.announce(max(next_seq, first_retained), first_retained, out)
    numbers: list[int] = []
    for item in out:
        if isinstance(item, Gap):
            lost = range(item.first, item.last + 1)
            assert not set(lost) & arrived
            numbers.extend(lost)
        else:
            numbers.append(int(item))
    begin = 1 if 1 in arrived else first_retained  # nothing delivered: the start moves, no gap
    assert numbers == list(range(begin, begin + len(numbers)))
    assert window.expected >= first_retained
    assert window.held_bytes == sum(len(str(seq)) for seq in arrived if seq > window.expected)


def test_what_is_held_is_bounded_and_asked_for_again() -> None:
    window = ReceiveWindow(1, 10)
    out: list[bytes | Gap] = []
    window.accept(2, b"12345678", out)
    window.accept(3, b"12345678", out)
    assert window.overflowed == 1 and window.held_bytes == 8
    window.accept(1, b"", out)
    assert out == [b"", b"12345678"] and window.missing() == (3, 3)


def test_hears_acknowledgements_of_its_own_receiver_and_nothing_else() -> None:
    instance, me, it = 1 << 61, 1 << 62, 1 << 60
    window = SendWindow(10_000, instance, me)
    window.receiver = it
    for _ in range(5):
        window.push(b"")
    ack = messages.pack(instance, it, me, "ack", applied=3)
    for other in (
        messages.pack(instance + 1, it, me, "ack", applied=3),
        messages.pack(instance, it + 1, me, "ack", applied=3),
        messages.pack(instance, it, me + 1, "ack", applied=3),
        messages.pack(instance, it, me, "bye", applied=3),
        messages.pack(instance, it, me, "ack", more=1, applied=3),
        messages.pack(instance, it, me, "ack", applied="3"),
        ack + b"x",
        *(ack[:end] for end in range(len(ack))),
    ):
        assert window.hear(other) is False and window.first == 1
    assert window.hear(ack) is True and window.first == 4
    assert window.hear(ack) is True and window.first == 4
    assert window.hear(messages.pack(instance, it, me, "ack", applied=1 << 60)) is True
    assert window.first == window.next_seq == 6 and window.used == 0
    window.receiver = 0  # nobody is there: whoever says so is looked at
    assert window.hear(ack) is False


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), max_size=60))
def test_a_sender_keeps_exactly_what_is_not_acknowledged(steps: list[tuple[int, int]]) -> None:
    window = SendWindow(10_000)
    kept: dict[int, bytes] = {}
    for pushes, acked in steps:
        for _ in range(pushes):
            data = b"x" * (window.next_seq % 7)
            kept[window.next_seq] = data
            window.push(data)
        known = [seq for seq in kept if seq <= acked]
        assert window.ack(acked) == len(known)
        for seq in known:
            del kept[seq]
        assert window.used == sum(len(data) + FRAME_OVERHEAD for data in kept.values())
        assert list(window.between(1, 1 << 62)) == list(kept.values())
        assert list(window.between(acked + 1, acked + 2)) == [
            data for seq, data in kept.items() if acked < seq <= acked + 2
        ]
    assert window.forget() == len(kept)
    assert window.used == 0 and window.first == window.next_seq


def test_what_was_numbered_for_an_earlier_life_is_no_gap_though_a_later_frame_came_first() -> None:
    """The hello said 18; 18 to 21 went to the life before ours; the ping that says so was lost."""
    window = ReceiveWindow(18, 1000)
    out: list[bytes | Gap] = []
    window.accept(22, b"v", out)
    assert out == [] and window.missing() == (18, 21)
    window.announce(24, 22, out)
    assert out == [b"v"] and (window.lost, window.held_bytes, window.expected) == (0, 0, 23)
    window.announce(30, 25, out)  # but now something was delivered: this is a loss
    assert out[1:] == [Gap(23, 24)] and window.lost == 2


def test_a_frame_that_its_receiver_would_refuse_is_not_taken_however_much_room_there_is() -> None:
    frames: list[bytes] = []

    def put(frame: bytes) -> bool:
        frames.append(frame)
        return True

    window = SendWindow(1 << 20, 1, 2, put, 1000)
    window.receiver = 3

    def frame(size: int) -> bytes:
        header = (1, 2, 3, window.next_seq, 0, 0, 1, 0, 0, 9)
        return (_core.pack_step(header, {}) + bytes(size))[:size]  # who sends looks at its head

    assert window.send(frame(1001)) == _core.SEND_FULL and window.next_seq == 1
    assert window.send(frame(1000)) <= _core.SENT_LOOK and len(frames) == 1


@pytest.mark.parametrize("wrong", [-1, 1 << 64])
def test_a_number_that_is_no_u64_is_refused(wrong: int) -> None:
    with pytest.raises(OverflowError):
        SendWindow(wrong)
    with pytest.raises(OverflowError):
        SendWindow(1, max_frame=wrong)
