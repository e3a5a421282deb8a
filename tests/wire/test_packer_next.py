"""send_next and pack_next: the bytes of pack; what a window does not take leaves no trace."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire import oracle
from tests.wire.strategies import Step, steps
from tests.wire.test_packer import DP, SLOTS, TP, VOCAB, arrays, handle
from tokenpipe import _core
from tokenpipe.errors import RowError
from tokenpipe.worker.arrays import as_array

NAMES = ("handles", "tokens", "counts", "status", "drained")
MORE = ("lp_k", "lp_ids", "lp_values", "lp_ranks", "extras_len", "extras")
INSTANCE, SENDER, RECEIVER = 1, 1 << 40, 3
STEP = count(1)  # a rank's steps grow


class Wire:
    """A put() that takes what it is told to."""

    def __init__(self) -> None:
        self.takes = True
        self.frames: list[bytes] = []
        self._newest: oracle.Frame | None = None
        self._read = 0

    def __call__(self, frame: bytes, /) -> bool:
        if self.takes:
            self.frames.append(frame)
        return self.takes

    def newest(self) -> oracle.Frame:
        """Return the newest frame, its rows named, and that of no frame twice."""
        while self._read < len(self.frames):
            frame = oracle.read(self.frames[self._read], 1)
            if frame.continues:
                assert self._newest is not None
                frame = oracle.follow(self._newest, frame)
            self._newest = frame
            self._read += 1
        assert self._newest is not None
        return self._newest


def end(bound: int = 1 << 20, **more: Any) -> tuple[Wire, _core.SendWindow, _core.StepPacker]:
    wire = Wire()
    window = _core.SendWindow(bound, INSTANCE, SENDER, wire)
    window.receiver = RECEIVER
    return wire, window, _core.StepPacker(DP, TP, SLOTS, VOCAB, window, as_array, **more)


@given(st.lists(st.tuples(steps(DP, SLOTS, VOCAB), st.sampled_from("srpw")), max_size=8), st.data())
@pytest.mark.case("B50")
def test_sends_what_the_twin_packs(plan: list[tuple[Step, str]], data: st.DataObject) -> None:
    wire, window, packer = end()
    twin = oracle.Packer(DP, TP, VOCAB)
    for number, (step, way) in enumerate(plan):
        given = arrays(step, data)
        args: tuple[Any, ...] = (number, 77, *(given.get(name) for name in NAMES + MORE))
        wire.takes = way != "r"
        before, sent_before = window.next_seq, len(wire.frames)
        if way in "sr":  # sent at once, or refused
            sent = packer.send_next(*args)
            assert sent <= _core.SENT_LOOK if wire.takes else sent == _core.SEND_REFUSED
        else:  # packed, then sent or withdrawn
            frame = packer.pack_next(*args)
            if way == "w":
                packer.withdraw()
            else:
                assert window.send(frame) <= _core.SENT_LOOK
        assert window.next_seq - before == len(wire.frames) - sent_before == (way in "sp")
        if len(wire.frames) == sent_before:
            continue
        header = (INSTANCE, SENDER, RECEIVER, before, number, 77)
        expected = twin.pack(
            header,
            step.handles,
            step.rows,
            step.status,
            step.drained,
            step.logprobs,
            step.extras,
        )
        back = wire.newest()
        assert back.header == expected.header
        for name, array in expected.columns.items():
            assert back.columns[name].tobytes() == array.tobytes(), name
        if all(0 <= t < VOCAB for row in step.rows for t in row):
            continues = oracle.read(wire.frames[-1], 1).continues
            assert continues or wire.frames[-1] == oracle.write(expected)
        assert packer.bad_tokens == twin.bad_tokens


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("rows", [1, 60, 300])
@pytest.mark.case("B50")
def test_a_plain_step_is_the_same_bytes_every_way(rows: int, dtype: type) -> None:
    handles = np.arange(rows, dtype=np.int64) << 35 | 1
    wire = Wire()
    window = _core.SendWindow(1 << 30, INSTANCE, SENDER, wire)
    window.receiver = RECEIVER
    packer = _core.StepPacker(0, 0, 512, 1 << 20, window)
    slow = _core.StepPacker(0, 0, 512, 1 << 20)
    for step in range(40):
        tokens: np.ndarray[Any, Any] = (np.arange(rows) * 7 + step).astype(dtype)
        taken = step % 3 != 1
        wire.takes = taken
        sent = packer.send_next(step, 5, handles, tokens, None, None, None)
        assert (sent <= _core.SENT_LOOK) == taken
        if taken:
            header = (INSTANCE, SENDER, RECEIVER, window.next_seq - 1, step, 5)
            named = slow.pack(*header, handles, tokens)
            slow.commit()
            assert oracle.write(wire.newest()) == named


def test_a_step_that_does_not_grow_is_refused_and_one_that_was_not_taken_may_come_again() -> None:
    wire, window, packer = end()
    rows = (None, np.array([handle(0)]), np.array([5]), None, None, None)
    wire.takes = False
    assert packer.send_next(7, *rows) == _core.SEND_REFUSED
    packer.pack_next(7, *rows)
    packer.withdraw()
    assert packer.last_step is None
    wire.takes = True
    packer.send_next(7, *rows)
    assert packer.last_step == 7
    for step in (7, 6, 0):
        with pytest.raises(RowError, match=f"step {step} after step 7"):
            packer.send_next(step, *rows)
        with pytest.raises(RowError, match=f"step {step} after step 7"):
            packer.pack_next(step, *rows)
    assert window.send(packer.pack_next(9, *rows)) <= _core.SENT_LOOK
    assert packer.last_step == 9
    with pytest.raises(RowError, match="step 9 after step 9, which was taken"):
        packer.send_next(9, *rows)
    assert wire.newest().columns["position"].tolist() == [1]


def test_0_is_no_handle_of_any_rank() -> None:
    packer = _core.StepPacker(0, 0, SLOTS, VOCAB, end()[1])
    for handles in ([0], [handle(1, dp=0), 0]):
        with pytest.raises(RowError, match="0 is not a handle of dp 0"):
            packer.send_next(
                next(STEP), 1, np.array(handles), np.array([5] * len(handles)), None, None, None
            )
    none = np.empty(0, np.int64), np.empty(0, np.int64)
    with pytest.raises(RowError, match="0 is not a handle of dp 0"):
        packer.send_next(next(STEP), 1, *none, None, None, np.array([0]))


def test_one_row_that_is_not_plain_changes_nothing_of_the_others() -> None:
    wire, _, packer = end()
    known = np.array([handle(0), handle(1)])
    for tokens in ([1, 2], [3, 4]):
        packer.send_next(next(STEP), 0, known, np.array(tokens), None, None, None)
    cases: list[tuple[list[int], list[int]]] = [
        ([handle(0), handle(1)], [5, VOCAB]),
        ([handle(0), handle(1)], [5, -1]),
        ([handle(0), handle(1)], [5, (1 << 32) + 5]),
        ([handle(0), handle(2)], [5, 6]),
        ([handle(0), handle(1, 2)], [5, 6]),
    ]
    for at, (handles, ids) in enumerate(cases):
        packer.send_next(next(STEP), 0, np.array(handles), np.array(ids), None, None, None)
        rows = wire.newest().columns
        assert rows["position"][0] == 2 + at
    with pytest.raises(RowError, match=r"row 1: .* is not a handle of dp"):
        packer.send_next(
            next(STEP), 0, np.array([handle(0), 77]), np.array([1, 2]), None, None, None
        )
    packer.send_next(next(STEP), 0, np.array([handle(0)]), np.array([1]), None, None, None)
    assert wire.newest().columns["position"].tolist() == [2 + len(cases)]


def test_what_is_no_array_is_converted_or_named() -> None:
    wire, _, packer = end()
    packer.send_next(next(STEP), 0, [handle(0), handle(1)], (1, 2), [1, 1], bytes(2), None)
    assert wire.newest().columns["tokens"].tolist() == [1, 2]
    every_other = np.arange(8, dtype=np.int32)[::2]
    packer.send_next(next(STEP), 0, [handle(0)], every_other[1:2], None, None, None)
    packer.send_next(next(STEP), 0, [handle(0), handle(1)], every_other[::2], None, None, None)
    assert wire.newest().columns["tokens"].tolist() == [0, 4]
    for handles, tokens in (
        (None, [1]),
        ([handle(0)], None),
        ([handle(0)], "x"),
        (np.array([1.0]), [1]),
        (np.array([handle(0)], np.int32 if handle(0) < 1 << 31 else "u8"), [1]),
        (np.array([handle(0)], ">i8"), [1]),
    ):
        with pytest.raises(RowError):
            packer.send_next(next(STEP), 0, handles, tokens, None, None, None)
    assert len(wire.frames) == 3


def test_a_window_says_why_it_takes_nothing() -> None:
    wire, window, packer = end(bound=1 << 8)
    step = (None, np.array([handle(0)]), np.array([5]), None, None, None)
    assert packer.send_next(next(STEP), *step) == _core.SENT_FIRST
    window.receiver = 0
    assert packer.send_next(next(STEP), *step) == _core.SEND_CLOSED
    window.receiver = RECEIVER
    while (sent := packer.send_next(next(STEP), *step)) == 0:
        pass
    assert sent == _core.SEND_FULL and window.used <= window.bound
    frame = packer.pack_next(next(STEP), *step)
    assert window.send(frame) == _core.SEND_FULL
    window.ack(window.next_seq - 1)
    assert window.send(frame) == _core.SENT_FIRST
    assert window.send(frame) == _core.SEND_MISADDRESSED
    assert wire.newest().columns["position"].tolist() == [len(wire.frames) - 1]


def test_the_lane_is_looked_at_every_32_frames() -> None:
    packer = end()[2]
    step = (None, np.array([handle(0)]), np.array([5]), None, None, None)
    sent = [packer.send_next(next(STEP), *step) for _ in range(64)]
    assert sent == [_core.SENT_FIRST, *[0] * 30, _core.SENT_LOOK, *[0] * 31, _core.SENT_LOOK]


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("plain", [True, False])
def test_an_interrupted_frame_is_put_all_the_same(behind: bool, plain: bool) -> None:
    taken: list[bytes] = []
    raises = [True, False, False, True, False, False]

    def interrupted(frame: bytes, /) -> bool:
        interrupt = raises.pop(0)
        if behind or not interrupt:
            taken.append(frame)
        if interrupt:
            raise KeyboardInterrupt
        return True

    window = _core.SendWindow(1 << 20, INSTANCE, SENDER, interrupted)
    window.receiver = RECEIVER
    packer = _core.StepPacker(DP, TP, SLOTS, VOCAB, window, as_array)
    more = (None if plain else [1],)
    for step in range(1, 5):
        rows = (step, 1, np.array([handle(0)]), np.array([step]), *more)
        if step % 2:
            with pytest.raises(KeyboardInterrupt):
                packer.send_next(*rows)
        else:
            packer.send_next(*rows)
        assert packer.last_step == step
    frames = window.between(1, 4)
    assert [frame for i, frame in enumerate(taken) if frame not in taken[:i]] == frames
    read = [oracle.read(frame, 1) for frame in frames]
    assert [frame.columns["tokens"].tolist() for frame in read] == [[1], [2], [3], [4]]
    named = [frame.columns for frame in read if not frame.continues]
    assert [c["position"].tolist() for c in named[1:]] == [[i] for i in range(1, len(named))]


def test_errors_of_the_wire_pass_through() -> None:
    def broken(frame: bytes, /) -> bool:
        raise OSError("no wire")

    window = _core.SendWindow(1 << 20, INSTANCE, SENDER, broken)
    window.receiver = RECEIVER
    packer = _core.StepPacker(DP, TP, SLOTS, VOCAB, window)
    for _ in range(2):
        with pytest.raises(OSError, match="no wire"):
            packer.send_next(next(STEP), 1, np.array([handle(0)]), np.array([5]), None, None, None)
    assert window.next_seq == 3 and len(window) == 2  # kept: nobody knows how far they came
    with pytest.raises(OSError, match="no wire"):
        window.send(packer.pack_next(8000, 1, np.array([handle(0)]), np.array([5])))
    packer.withdraw()  # of no use: it has its number
    assert packer.last_step == 8000 and len(window) == 3
    positions = [oracle.read(frame, 1) for frame in window.between(1, 3)]
    assert positions[2].columns["position"].tolist() == [2]
    with pytest.raises(TypeError, match="a StepPacker with a window"):
        _core.StepPacker(DP, TP, SLOTS).send_next(1, 1, [], [])
    with pytest.raises(TypeError, match="a frame is bytes"):
        window.send(bytearray(8))  # type: ignore[arg-type]


def test_a_publish_inside_of_a_conversion_takes_a_number_of_its_own() -> None:
    """The number of a frame is read when nothing of the caller's runs any more."""
    wire = Wire()
    window = _core.SendWindow(1 << 20, INSTANCE, SENDER, wire)
    window.receiver = RECEIVER

    def convert(value: Any, letter: str, name: str) -> Any:
        if name == "tokens" and not wire.frames:
            assert packer.send_next(1, 5, np.array([handle(1)]), np.array([3])) <= _core.SENT_LOOK
        return as_array(value, letter, name)

    packer = _core.StepPacker(DP, TP, SLOTS, VOCAB, window, convert)
    assert packer.send_next(2, 5, np.array([handle(0)]), [7]) <= _core.SENT_LOOK
    assert [_core.peek(frame)[4] for frame in wire.frames] == [1, 2]
    assert packer.last_step == 2


def test_an_array_that_shrinks_while_another_is_read_is_read_as_it_is_then() -> None:
    wire = Wire()
    window = _core.SendWindow(1 << 20, INSTANCE, SENDER, wire)
    window.receiver = RECEIVER
    handles = np.array([handle(0), handle(1)])

    def convert(value: Any, letter: str, name: str) -> Any:
        handles.resize(1, refcheck=False)
        return as_array(value, letter, name)

    packer = _core.StepPacker(DP, TP, SLOTS, VOCAB, window, convert)
    assert packer.send_next(1, 5, handles, [7]) <= _core.SENT_LOOK
    assert wire.newest().columns["handles"].tolist() == [handle(0)]
    handles = np.array([handle(0), handle(1)])
    with pytest.raises(RowError, match="counts sum to 1, tokens has 2"):
        packer.send_next(2, 5, handles, [7, 8])
