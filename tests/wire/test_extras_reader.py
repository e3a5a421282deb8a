"""What came beside tokens is laid beside the right ones, however its bytes and tokens come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.extras import padded, wrap
from tokenpipe.errors import FrameError
from tokenpipe.extras import PromptLogprobs, RowExtras
from tokenpipe.types import OutputExtras, TokenLogprobs
from tokenpipe.wire import ExtrasReader, pack_extras


def test_wraps_that_go_back_are_refused() -> None:
    reader = ExtrasReader()
    reader.take(wrap(b"", 5, 3), 0, 8)
    with pytest.raises(FrameError, match="extras of token 7"):
        reader.take(wrap(b"", 7, 1), 8, 9)


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=6),
    bytes_at=st.lists(st.integers(1, 40), max_size=12),
    takes=st.lists(st.integers(0, 4), max_size=12),
)
def test_deltas_put_together_are_the_whole(
    rows: list[tuple[int, bool]], bytes_at: list[int], takes: list[int]
) -> None:
    """However the bytes come and whenever they are asked for, once there are the tokens."""
    data, total, custom = b"", 0, []
    for number, (count, carries) in enumerate(rows):
        if carries:
            extras = RowExtras(
                sampling_masks=[[total + i] for i in range(count)],
                draft_token_ids=[-1 if (total + i) % 2 else total + i for i in range(count)],
                custom=bytes([number]),
            )
            data += wrap(pack_extras(extras, count), total, count)
            custom.append((total, bytes([number])))
        total += count
    whole = ExtrasReader(keep=True)
    delta = ExtrasReader()
    at = 0
    for size in bytes_at:  # nothing is asked for before its bytes are there: then nothing comes
        assert delta.take(data[at : at + size], 0, 0) is None
        whole.take(data[at : at + size], 0, 0)
        at += size
    masks: list[Any] = []
    drafts: list[Any] = []
    got: list[tuple[int, bytes]] = []
    begin = 0
    for size in [*takes, total]:
        end = min(begin + size, total)
        last = end == total
        extras_ = delta.take(data[at:], begin, end, last) or OutputExtras()
        masks += padded(extras_.sampling_masks, end - begin)
        drafts += padded(extras_.draft_token_ids, end - begin)
        got += extras_.custom or []
        all_ = whole.take(data[at:], 0, end, last) or OutputExtras()
        assert str(padded(all_.sampling_masks, end)) == str(masks)
        assert padded(all_.draft_token_ids, end) == drafts
        assert (all_.custom or []) == got
        at, begin = len(data), end
    assert got == custom
    assert [None if m is None else m.tolist() for m in masks] == [
        [sum(n for n, _ in rows[:r]) + i] if carries else None
        for r, (count, carries) in enumerate(rows)
        for i in range(count)
    ]


def test_a_repeated_prefill_gives_its_prompt_once() -> None:
    def prompt(at: int, n: int, value: float) -> bytes:
        return pack_extras(
            RowExtras(prompt_logprobs=PromptLogprobs(at, [[9]] * n, [[value]] * n, [1] * n)), 0
        )

    def one(value: float) -> TokenLogprobs:
        return TokenLogprobs((9,), (value,), 1)

    reader = ExtrasReader(10)
    first = reader.take(wrap(prompt(1, 2, 1.0), 0, 0), 0, 1)
    assert first is not None and first.prompt_logprobs == [None, one(1), one(1)]
    assert reader.take(wrap(prompt(1, 2, 2.0), 1, 0), 1, 2) is None
    more = reader.take(wrap(prompt(2, 3, 3.0), 2, 0), 2, 3)
    assert more is not None and more.prompt_logprobs == [one(3), one(3)]
    hole = reader.take(wrap(prompt(6, 1, 4.0), 3, 0), 3, 4)
    assert hole is not None and hole.prompt_logprobs == [None, one(4)]


def test_bytes_that_come_in_pieces_are_read_once_they_are_whole() -> None:
    raw = wrap(pack_extras(RowExtras(custom=b"abc"), 1)) + wrap(
        pack_extras(RowExtras(custom=b"d"), 1), 1
    )
    reader = ExtrasReader()
    got = [reader.take(raw[at : at + 1], 0, 2) for at in range(len(raw))]
    assert [(at, extras.custom) for at, extras in enumerate(got) if extras is not None] == [
        (len(raw) - len(wrap(pack_extras(RowExtras(custom=b"d"), 1))) - 1, [(0, b"abc")]),
        (len(raw) - 1, [(1, b"d")]),
    ]


def test_what_stands_before_its_tokens_waits_for_them() -> None:
    reader = ExtrasReader()
    assert reader.take(wrap(pack_extras(RowExtras(draft_token_ids=[7, 8]), 2), 3, 2), 0, 3) is None
    first = reader.take(b"", 3, 4)
    assert first is not None and first.draft_token_ids == [7]
    second = reader.take(b"", 4, 6)
    assert second is not None and second.draft_token_ids == [8, None]
    assert reader.take(b"", 6, 7, True) is None


def test_entries_that_are_skipped_are_not_its_tokens() -> None:
    raw = wrap(pack_extras(RowExtras(draft_token_ids=[5, 6, 7]), 3), 10, 1, skip=2)
    got = ExtrasReader().take(raw, 10, 11)
    assert got is not None and got.draft_token_ids == [7]


def test_what_came_beside_no_token_is_given_with_the_last_output() -> None:
    reader = ExtrasReader()
    raw = wrap(pack_extras(RowExtras(custom=b"end"), 0), 2, 0)
    assert reader.take(raw, 0, 2) is None
    got = reader.take(b"", 2, 2, True)
    assert got is not None and got.custom == [(2, b"end")]


def test_the_latest_word_counts_for_the_usage_and_never_more_than_there_is() -> None:
    reader = ExtrasReader(prompt_tokens=4)
    assert reader.usage(9, cached=3) == (3, None)
    words = [RowExtras(reasoning_tokens=1, cached_tokens=9), RowExtras(reasoning_tokens=6)]
    for at, row in enumerate(words):
        reader.take(wrap(pack_extras(row, 1), at), at, at + 1)
    assert reader.usage(9, cached=3) == (4, 6)
    assert reader.usage(2) == (4, 2)


def test_with_keep_everything_is_given_each_time() -> None:
    reader = ExtrasReader(keep=True)
    for at in range(3):
        got = reader.take(wrap(pack_extras(RowExtras(custom=bytes([at])), 1), at), 0, at + 1)
        assert got is not None and got.custom == [(i, bytes([i])) for i in range(at + 1)]
