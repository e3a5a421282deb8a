"""A StepFrame may continue the frame before it, and skips what it does not know."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire import oracle
from tests.wire.strategies import frames, whole
from tokenpipe import _core
from tokenpipe.errors import FrameError
from tokenpipe.wire import StepFrame


@given(frames(1), frames(1), st.sampled_from(["instance", "sender", "seq", "rows", None]))
def test_continues_the_frame_before_and_no_other(
    before: oracle.Frame, frame: oracle.Frame, amiss: str | None
) -> None:
    whole(before)
    frame.columns.update({name: frame.columns[name][:0] for name in ("handles", "position")})
    for name in ("instance", "sender"):
        frame.header[name] = before.header[name]
    frame.header["seq"] = (before.header["seq"] + 1) & oracle.U64
    if amiss in ("instance", "sender", "seq"):
        frame.header[amiss] ^= 1
    raw = oracle.write(frame)
    first = StepFrame.unpack(oracle.write(before))
    if not frame.header["rows"]:  # it has nothing to continue with
        assert StepFrame.unpack(raw, first).handles.tolist() == []
        return
    try:
        expected = oracle.follow(before, frame)
    except oracle.Refused:
        with pytest.raises(FrameError, match="does not continue the frame before it"):
            StepFrame.unpack(raw, first)
        with pytest.raises(FrameError, match="does not continue the frame before it"):
            StepFrame.unpack(raw)
        return
    view = StepFrame.unpack(raw, first)
    assert view.handles.tolist() == expected.columns["handles"].tolist()
    assert view.positions.tolist() == expected.columns["position"].tolist()
    assert view.tokens.tobytes() == expected.columns["tokens"].tobytes()


def test_skips_columns_and_header_fields_it_does_not_know() -> None:
    raw = msgpack.packb([1, 1, [1, 2, 3, 4, 0, 0, 9, 1, 1, 5, 77], {
        99: b"later", 0: b"", 1: (7).to_bytes(8, "little"), 3: b"\1\0\0\0",
    }])  # fmt: skip
    view = StepFrame.unpack(raw)
    assert view.handles.tolist() == [7]
    assert sorted(view.columns) == [1, 3]


@pytest.mark.case("F20")
def test_a_slot_with_two_rows_is_not_continued() -> None:
    def frame(seq: int, body: dict[int, bytes]) -> bytes:
        return _core.pack_step((1, 2, 3, seq, 0, 0, seq, 2, 2, 5), body)

    tokens = bytes(8)
    for other, good in ((7 << 35 | 1, True), (1, False), (2, False)):
        handles = (1).to_bytes(8, "little") + other.to_bytes(8, "little")
        before = StepFrame.unpack(frame(1, {1: handles, 3: tokens}))
        if good:
            assert StepFrame.unpack(frame(2, {3: tokens}), before).positions.tolist() == [1, 1]
        else:
            with pytest.raises(FrameError, match="does not continue"):
                StepFrame.unpack(frame(2, {3: tokens}), before)
