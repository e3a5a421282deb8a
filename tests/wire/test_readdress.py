"""A frame gets the header of another lane, and nothing else of it changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.frames import Row, output_frame
from tokenpipe._core import peek
from tokenpipe.errors import FrameError
from tokenpipe.wire import Abort, OutputFrame, pack_control, readdressed, unpack_control

U64 = st.integers(0, (1 << 64) - 1)


@given(st.tuples(U64, U64, U64, U64))
def test_the_new_header_is_there_and_the_rest_is_as_it_was(
    header: tuple[int, int, int, int],
) -> None:
    frame = output_frame(Row(5, 6, [7, 8], text="ab"))
    again = readdressed(frame, header)
    assert peek(again)[1:] == header
    before, after = OutputFrame.unpack(frame), OutputFrame.unpack(again)
    assert before.columns == after.columns and before.processor == after.processor
    assert readdressed(again, (1, 2, 3, 1)) == frame
    control = readdressed(pack_control((0, 0, 0, 1), [Abort(9)]), header)
    assert control == pack_control(header, [Abort(9)])
    assert unpack_control(control)[1] == [Abort(9)]


@pytest.mark.parametrize("raw", [b"", b"\x91\x01", b"\x94\x02\x01\x93\x01\x02\x03\x80", b"\x94"])
def test_other_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(FrameError):
        readdressed(raw, (1, 2, 3, 4))
