"""Extras: there and back, and every length is checked."""

from __future__ import annotations

import math
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.wire.extras import padded, row_extras, wrap
from tokenpipe.errors import FrameError
from tokenpipe.extras import RowExtras
from tokenpipe.types import OutputExtras, TokenLogprobs
from tokenpipe.wire import ExtrasReader, pack_extras, unpack_error
from tokenpipe.wire.extras_format import MOST_DIMENSIONS, NO_MASK, RECORD, WRAP
from tokenpipe.wire.extras_parser import KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()


def logprobs_of(found: tuple[Any, Any, Any] | None, count: int) -> list[TokenLogprobs | None]:
    if found is None:
        return [None] * count
    given = [
        TokenLogprobs(
            tuple(i), tuple(None if math.isnan(value) else value for value in values), rank
        )
        for i, values, rank in zip(*(array.tolist() for array in found), strict=True)
    ]
    return [*given, *[None] * (count - len(given))]


@given(st.integers(0, 3).flatmap(lambda n: st.tuples(st.just(n), row_extras(n))))
@pytest.mark.case("B64")
def test_says_what_was_given(row: tuple[int, RowExtras]) -> None:
    count, given = row
    reader = ExtrasReader()
    got = (
        reader.take(wrap(pack_extras(given, count), 7, count), 7, 7 + count, True) or OutputExtras()
    )
    prompt = given.prompt_logprobs
    if prompt is None:
        assert got.prompt_logprobs is None
    else:
        end = prompt.position + len(prompt.ranks)
        expected = [None] * prompt.position + logprobs_of(prompt[1:], len(prompt.ranks))
        assert got.prompt_logprobs == expected and len(expected) == end
    if given.pooled is None:
        assert got.pooled is None
    else:
        assert got.pooled is not None and got.pooled.shape == given.pooled.shape
        assert got.pooled.tobytes() == given.pooled.tobytes()  # NaN too
        assert got.pooled.dtype == np.float32 and got.pooled.flags.aligned
        assert not got.pooled.flags.writeable
    masks = [None if m is None else m.tolist() for m in padded(got.sampling_masks, count)]
    assert masks == padded(given.sampling_masks, count)
    drafts = [None if t == -1 else t for t in given.draft_token_ids or []]
    assert padded(got.draft_token_ids, count) == padded(drafts, count)
    assert padded(got.draft_logprobs, count) == logprobs_of(given.draft_logprobs, count)
    assert got.custom == ([(7, given.custom)] if given.custom else None)
    reasoning, cached = given.reasoning_tokens, given.cached_tokens
    assert reader.usage(5, 3) == (
        3 if cached is None else cached,
        None if reasoning is None else min(reasoning, 5),
    )
    assert unpack_error(pack_extras(given, count)) == (given.error, given.error_field)
    for column in (got.sampling_masks, got.draft_token_ids, got.draft_logprobs):
        assert column is None or len(column) == count


@given(row_extras(3), st.data())
def test_damaged_extras_are_a_frame_error_or_other_extras(
    extras: RowExtras, data: st.DataObject
) -> None:
    raw = bytearray(wrap(pack_extras(extras, 3), 0, 3))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(FrameError):
        ExtrasReader(8).take(bytes(raw), 0, 3, True)


@given(st.binary(max_size=60), st.integers(1, 9))
@example(b"\x08" + b"\xff" * 32, 2)  # 8 dimensions of 2^32 - 1
@example(b"\x03" + bytes(4) + b"\xff" * 8, 2)  # nothing, in a shape no array can have
@example(b"\xff" * 4 + b"\x01\0\0\0", 5)
@example(bytes(4) + b"\xff" * 4, 5)
@example(b"\0\0\0\0\0\0\0\0\0\0\0\0", 1)
def test_noise_is_a_frame_error_or_extras(raw: bytes, kind: int) -> None:
    for end in range(len(raw) + 1):
        record = RECORD.pack(kind, end) + raw[:end]
        with suppress(FrameError):
            ExtrasReader(8).take(wrap(record), 0, 1, True)
        with suppress(FrameError):
            unpack_error(record)


@given(row_extras(2), st.data())
def test_every_shorter_record_is_refused(extras: RowExtras, data: st.DataObject) -> None:
    raw = pack_extras(extras, 2)
    if raw:
        piece = raw[: data.draw(st.integers(1, len(raw) - 1))]
        ends = {0}
        at = 0
        while at < len(raw):
            at += RECORD.size + RECORD.unpack_from(raw, at)[1]
            ends.add(at)
        if len(piece) not in ends:
            with pytest.raises(FrameError):
                ExtrasReader().take(wrap(piece), 0, 1)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (RECORD.pack(7, 2) + b"x", "a record of 2 bytes in 1"),
        (b"\x07\0", "2 bytes are no record"),
        ((RECORD.pack(7, 1) + b"x") * 2, "comes twice"),
        (RECORD.pack(6, 5) + bytes(5), "1 bytes too many"),
        (RECORD.pack(4, 3) + bytes(3), "draft_token_ids: 3 bytes"),
        (RECORD.pack(2, 1) + b"\x09", "9 dimensions"),
        (RECORD.pack(9, 0), "1 bytes are needed, 0 are there"),
        (RECORD.pack(9, 3) + b"\x03ab", "error: 3 bytes are needed, 2 are there"),
        (RECORD.pack(5, 8) + bytes(8), "no entry for the token itself"),
        (RECORD.pack(1, 24) + struct.pack("<IIIifi", 8, 1, 1, 0, 0, 0), "9 of 8 prompt tokens"),
    ],
)
def test_refusals_say_why(record: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=re.escape(why)):
        ExtrasReader(8).take(wrap(record), 0, 1)


def test_unknown_records_are_skipped() -> None:
    raw = RECORD.pack(99, 3) + b"new" + pack_extras(RowExtras(custom=b"x"), 1)
    got = ExtrasReader().take(wrap(raw), 0, 1)
    assert got is not None and got.custom == [(0, b"x")]


def test_the_page_has_the_numbers_of_the_code() -> None:
    table = re.findall(r"^\| (\d) \| (\w+) \| ", PAGE[PAGE.index("### Extras") :], re.M)[
        : len(KINDS)
    ]
    assert table == [(str(kind), name) for kind, (name, _) in KINDS.items()]
    assert f"(at most {MOST_DIMENSIONS})" in PAGE
    assert NO_MASK == (1 << 32) - 1 and "2^32-1: the token has no mask" in PAGE
    assert (RECORD.size, WRAP.size) == (5, 16)
