"""Frames of columns against their twin, in both directions, and against bytes that are none."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.wire import oracle
from tests.wire.strategies import frames, whole
from tokenpipe import _core
from tokenpipe.errors import FrameError
from tokenpipe.wire import LaneHeader, OutputFrame, StepFrame

UNPACK = {1: _core.unpack_step, 2: _core.unpack_output}
PACK = {1: _core.pack_step, 2: _core.pack_output}
VIEW: dict[int, type[StepFrame] | type[OutputFrame]] = {1: StepFrame, 2: OutputFrame}
PROPERTY = {"position": "positions"}  # where a view's name is not the column's


anything = st.one_of(frames(1), frames(2))


def columns_of(frame: oracle.Frame) -> dict[int, bytes]:
    """Return the columns that the twin writes, by id."""
    raw = oracle.write(frame)
    return UNPACK[frame.shape.kind](raw)[1]


@given(anything)
def test_reads_what_the_twin_writes(frame: oracle.Frame) -> None:
    view = VIEW[frame.shape.kind].unpack(oracle.write(whole(frame)))
    assert tuple(view.header) == tuple(frame.header.values())[:4]
    assert isinstance(view.header, LaneHeader)
    for name in frame.shape.header[4:]:
        field = "tokens_total" if name == "tokens" else name
        assert getattr(view, field) == frame.header[name]
    if isinstance(view, OutputFrame):
        assert view.text_bytes == frame.columns["text"].tobytes()
        assert b"".join(view.extras) == view.extras_bytes
        assert [len(part) for part in view.extras] == view.extras_len.tolist()
    assert view.extras_bytes == frame.columns["extras"].tobytes()
    for column in frame.shape.columns:
        if column.name.startswith("error") or column.name in ("text", "extras"):
            continue
        array = getattr(view, PROPERTY.get(column.name, column.name))
        assert array.dtype == column.dtype
        assert array.tobytes() == frame.columns[column.name].tobytes()
        assert not array.flags.writeable
        assert array.flags.aligned


@given(anything)
def test_writes_the_same_bytes_as_the_twin_and_any_msgpack(frame: oracle.Frame) -> None:
    raw = oracle.write(frame)
    assert PACK[frame.shape.kind](tuple(frame.header.values()), columns_of(frame)) == raw


@given(anything)
def test_the_twin_reads_what_c_writes(frame: oracle.Frame) -> None:
    columns = {c.id: frame.columns[c.name] for c in frame.shape.columns}
    raw = PACK[frame.shape.kind](tuple(frame.header.values()), columns)
    back = oracle.read(raw, frame.shape.kind)
    assert back.header == frame.header
    for name, array in frame.columns.items():
        assert back.columns[name].tobytes() == array.tobytes()


@given(anything)
def test_peek_reads_the_lane_header(frame: oracle.Frame) -> None:
    expected = (frame.shape.kind, *tuple(frame.header.values())[:4])
    assert _core.peek(oracle.write(frame)) == expected


@given(anything, st.data())
def test_every_shorter_piece_is_refused(frame: oracle.Frame, data: st.DataObject) -> None:
    raw = oracle.write(frame)
    piece = raw[: data.draw(st.integers(0, len(raw) - 1))]
    with pytest.raises(FrameError):
        UNPACK[frame.shape.kind](piece)


@given(anything, st.data())
@pytest.mark.case("B50")
def test_agrees_with_the_twin_about_damaged_bytes(frame: oracle.Frame, data: st.DataObject) -> None:
    raw = bytearray(oracle.write(frame))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    agree(bytes(raw), frame.shape.kind)


@given(st.binary(max_size=64), st.sampled_from([1, 2]))
@example(b"", 1)
@example(b"\x94\x01\x01\xdd\xff\xff\xff\xff", 1)
@example(b"\x94\x01\x01\x9a" + b"\x00" * 10 + b"\xdf\xff\xff\xff\xff", 1)
@example(b"\x80\x04\x95\x10.", 1)  # how a pickle begins
@pytest.mark.case("B73")
def test_agrees_with_the_twin_about_noise(raw: bytes, kind: int) -> None:
    agree(raw, kind)


def agree(raw: bytes, kind: int) -> None:
    """Both read the same, or both refuse; what C reads it writes again with the same meaning."""
    try:
        expected = oracle.read(raw, kind)
    except oracle.Refused:
        with pytest.raises(FrameError):
            UNPACK[kind](raw)
        return
    header, columns = UNPACK[kind](raw)
    assert header == tuple(expected.header.values())
    again = oracle.read(PACK[kind](header, columns), kind)
    for name, array in expected.columns.items():
        assert again.columns[name].tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ((1, 2, 3, 4, 0, 0, 0, 1, 1, 0), {1: b"\0" * 8}),  # tokens absent
        ((1, 2, 3, 4, 0, 0, 0, 1, 1, 0), {1: b"\0" * 7, 3: b"\0" * 4}),
        ((1, 2, 3, 4, 1 << 12, 0, 0, 0, 0, 0), {}),  # no such dp
        ((1, 2, 3, 4, 0, 0, 0, (1 << 20) + 1, 0, 0), {}),
    ],
)
def test_does_not_write_what_it_could_not_read(
    header: tuple[int, ...], columns: dict[int, bytes]
) -> None:
    with pytest.raises(FrameError):
        _core.pack_step(header, columns)


def test_refuses_arguments_that_are_no_frame_at_all() -> None:
    with pytest.raises(ValueError, match="10 integers"):
        _core.pack_step((1, 2), {})
    with pytest.raises(ValueError, match="not a column id"):
        _core.pack_step((1, 2, 3, 4, 0, 0, 0, 0, 0, 0), {42: b""})
    with pytest.raises(OverflowError):
        _core.pack_step((-1, 2, 3, 4, 0, 0, 0, 0, 0, 0), {})
    with pytest.raises(TypeError):
        _core.unpack_step("text")  # type: ignore[arg-type]


def test_reads_any_buffer() -> None:
    raw = _core.pack_step((1, 2, 3, 4, 0, 0, 0, 0, 0, 0), {})
    assert _core.unpack_step(memoryview(raw)) == _core.unpack_step(bytearray(raw))
