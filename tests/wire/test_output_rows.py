"""Picked rows are as if the frame had been packed of them alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.client.frames import Row, output_frame
from tokenpipe.wire import OutputFrame

NAMES = "keys counts tokens offsets finish stop_reason lp_k lp_ids lp_values lp_ranks".split()
NAMES += "errors error_fields error_code texts extras".split()


@st.composite
def rows(draw: st.DrawFn) -> Row:
    tokens = draw(st.lists(st.integers(0, 99), max_size=3))
    k = draw(st.sampled_from([None, 0, 2]))
    return Row(
        draw(st.integers(1, 9)),
        draw(st.integers(0, 9)),
        tokens,
        finish=draw(st.integers(0, 4)),
        error=draw(st.sampled_from(["", "what", "wörter"])),
        error_field=draw(st.sampled_from(["", "seed"])),
        text=draw(st.sampled_from(["", "a", "ä€"])),
        extras=draw(st.sampled_from([b"", b"xyz"])),
        logprobs=None
        if k is None or not tokens
        else [([t, *range(k)], [-t / 8.0 - i for i in range(k + 1)], t + 1) for t in tokens],
    )


@given(st.lists(st.tuples(rows(), st.booleans()), min_size=1, max_size=6))
def test_picked_rows(some: list[tuple[Row, bool]]) -> None:
    whole = OutputFrame.unpack(output_frame(*(row for row, _ in some)))
    picked = whole.picked(np.array([kept for _, kept in some]))
    alone = OutputFrame.unpack(output_frame(*(row for row, kept in some if kept)))
    assert (picked.rows, picked.tokens_total) == (alone.rows, alone.tokens_total)
    for name in NAMES:
        assert list(getattr(picked, name)) == list(getattr(alone, name)), name
