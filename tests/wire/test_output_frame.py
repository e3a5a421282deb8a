"""The texts of an OutputFrame, row by row."""

from __future__ import annotations

import sys

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tokenpipe import _core
from tokenpipe.wire import OutputFrame


def test_error_texts_are_cut_by_row_and_survive_bad_utf8() -> None:
    text = "zu früh".encode()
    raw = _core.pack_output(
        (1, 2, 3, 4, 0, 0, 3, 0, 0),
        {
            1: np.array([7, 8, 9], np.uint64),
            2: np.zeros(3, np.uint32),
            4: np.zeros(3, np.uint32),
            11: np.array([len(text), 0, 2], np.uint16),
            12: text + b"a\xff",
        },
    )
    assert OutputFrame.unpack(raw).errors == ["zu früh", "", "a�"]


@given(
    rows=st.lists(
        st.one_of(
            st.text(max_size=90).map(str.encode),
            st.text("aé€😀\x00\xff\u0100", max_size=9).map(str.encode),
            st.binary(max_size=40),
            st.text(min_size=1, max_size=40).map(lambda text: text.encode()[:-1]),
        ),
        max_size=8,
    )
)
@example([b"a" * n for n in range(40)])
@example(["é".encode() * n for n in range(140)])
@example([b"a" * n + "€".encode() + b"b" * n for n in range(140)])
@example(["😀".encode() * n + b"\x80" for n in (3, 4, 5, 63, 64, 65)])
def test_the_str_of_each_row_is_that_of_pythons_decoder(rows: list[bytes]) -> None:
    sizes = np.array([len(row) for row in rows], np.uint32)
    texts = _core.split_text(sizes.tobytes(), 4, b"".join(rows))
    want = [row.decode(errors="replace") for row in rows]
    assert texts == want
    assert [str(t.encode(), "utf-8") for t in texts] == want, "in the form that Python makes"
    assert [t.isascii() for t in texts] == [w.isascii() for w in want]
    assert [sys.getsizeof(t) for t in texts] == [sys.getsizeof("".join(w)) for w in want]
