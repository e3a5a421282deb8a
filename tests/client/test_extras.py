"""Extras at the client: once each, beside their tokens; what is none harms its own request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.frames import Row, output_frame
from tests.client.test_client_core import ERROR, LENGTH, STOP, make_core
from tests.processor import beside
from tokenpipe._core import Inbox, Stream
from tokenpipe.client import ClientCore
from tokenpipe.extras import RowExtras
from tokenpipe.types import (
    FinishReason,
    RequestOutput,
    RequestOutputKind,
    SamplingParams,
    Usage,
)
from tokenpipe.wire import Cancel, pack_extras
from tokenpipe.wire.extras_format import WRAP


def wrap(extras: bytes, offset: int, count: int) -> bytes:
    return WRAP.pack(offset, count, 0, len(extras)) + extras


def wrapped(tokens: list[int], offset: int, extra: bytes = b"") -> bytes:
    return wrap(beside.packed(tokens, extra), offset, len(tokens))


def start(core: ClientCore[Stream], kind: RequestOutputKind = RequestOutputKind.DELTA) -> Stream:
    (stream,) = core.open(core.expand([1, 2, 3], SamplingParams(output_kind=kind)))
    return stream


@given(st.data())
@pytest.mark.parametrize("kind", list(RequestOutputKind))
def test_any_rows_in_any_repetition_give_all_extras_once(
    kind: RequestOutputKind, data: st.DataObject
) -> None:
    core = make_core()
    stream = start(core, kind)
    tokens = list(range(100, 100 + data.draw(st.integers(1, 12))))
    whole, ends = b"", [0]  # bytes of extras that must be there with so many tokens
    custom: list[tuple[int, bytes]] = []
    while len(ends) <= len(tokens):
        at = len(ends) - 1
        some = tokens[at : at + data.draw(st.integers(1, 3))]
        whole += wrapped(some, at, bytes([at]))
        custom.append((at, bytes([at])))
        ends += [len(whole)] * len(some)
    got: dict[str, list[Any]] = {"tokens": [], "masks": [], "drafts": [], "lps": [], "custom": []}

    def take() -> None:
        item = stream.take()
        if item is None:
            return
        if kind != RequestOutputKind.DELTA:
            assert item.offset == 0
            for column in got.values():
                column.clear()
        n = len(item.token_ids)
        got["tokens"] += item.token_ids
        got["masks"] += item.sampling_masks or [None] * n
        got["drafts"] += item.draft_token_ids or [None] * n
        got["lps"] += item.draft_logprobs or [None] * n
        got["custom"] += item.custom or []

    have = 0
    for more in [*data.draw(st.lists(st.integers(0, 3), max_size=8)), len(tokens)]:
        upto = min(len(tokens), have + more)
        back = data.draw(st.integers(0, have))
        byte = data.draw(st.integers(0, ends[back]))
        # a row may be ahead with its bytes, never behind
        end = data.draw(st.integers(ends[upto], len(whole)))
        row = Row(stream.key, back, tokens[back:upto], extras=whole[byte:end], extras_offset=byte)
        core.feed(output_frame(row), 0.0)
        have = upto
        if data.draw(st.booleans()):
            take()
    core.feed(output_frame(Row(stream.key, have, [], LENGTH)), 0.0)
    take()
    assert stream.over
    assert got["tokens"] == tokens and got["custom"] == custom
    assert [None if m is None else m.tolist() for m in got["masks"]] == [
        beside.mask_of(t) for t in tokens
    ]
    assert got["drafts"] == [beside.draft_of(t) for t in tokens]
    assert got["lps"] == [beside.draft_logprobs_of(t) for t in tokens]


def test_what_came_beside_no_token_comes_with_the_end() -> None:
    core = make_core()
    stream = start(core)
    pooled = np.array([[1.5, np.nan], [-np.inf, 0.0]], np.float32)
    extras = pack_extras(RowExtras(pooled=pooled, reasoning_tokens=0, custom=b"x"), 0)
    core.feed(output_frame(Row(stream.key, 0, [], extras=wrap(extras, 0, 0))), 0.0)
    assert stream.take() is None  # alone it wakes nobody
    core.feed(output_frame(Row(stream.key, 0, [], STOP)), 0.0)
    item = stream.take()
    assert item is not None and item.finish_reason is FinishReason.STOP and item.token_ids == []
    assert item.pooled is not None and item.pooled.tobytes() == pooled.tobytes()
    assert item.custom == [(0, b"x")] and item.usage == Usage(3, 0, 0, 0)


def test_a_worker_knows_better_what_its_cache_had() -> None:
    for said, expected in ((2, 2), (9, 3)):
        core = make_core()
        stream = start(core)
        extras = wrap(pack_extras(RowExtras(cached_tokens=said), 1), 0, 1)
        core.feed(output_frame(Row(stream.key, 0, [7], LENGTH, extras=extras)), 0.0)
        item = stream.take()
        assert item is not None and item.usage == Usage(3, 1, expected, None)


def test_reasoning_is_in_the_usage_and_never_more_than_there_is() -> None:
    cases: list[tuple[list[int], int, int | None]] = [([5], 3, 3), ([99, 2], 3, 2), ([], 3, None)]
    for said, tokens, expected in cases:
        core = make_core()
        stream = start(core)
        extras = b""
        for at, reasoning in enumerate(said):
            extras += wrap(pack_extras(RowExtras(reasoning_tokens=reasoning), 1), at, 1)
        core.feed(output_frame(Row(stream.key, 0, [7] * tokens, LENGTH, extras=extras)), 0.0)
        item = stream.take()
        assert item is not None and item.usage == Usage(3, tokens, 0, expected)


@pytest.mark.case("B50")
@pytest.mark.parametrize(
    "bad",
    [
        wrap(b"\x07\xff\xff\xff\xff", 0, 1),
        wrap(b"\x02\x01\0\0\0\x63", 0, 1),
        wrap(b"", 9, 1) + wrap(b"", 0, 1),
    ],
)
@pytest.mark.parametrize("finish", [0, STOP])
def test_malformed_extras_end_their_request_alone(bad: bytes, finish: int) -> None:
    core = make_core()
    stream, other = start(core), start(core)
    rows = [
        Row(stream.key, 0, [5], finish, extras=bad),
        Row(other.key, 0, [6], extras=wrapped([6], 0)),
    ]
    core.feed(output_frame(*rows), 0.0)
    item = stream.take()
    assert item is not None and item.token_ids == [5] and item.extras is None
    assert item.finish_reason is FinishReason.ERROR
    assert item.error is not None and item.error.startswith("extras: ")
    assert item.usage == Usage(3, 1)
    assert stream.take() is None and stream.over and not stream.live
    assert core.take_outgoing() == ([] if finish else [Cancel(stream.key)])
    core.feed(output_frame(Row(stream.key, 1, [5], LENGTH), Row(other.key, 1, [7], LENGTH)), 0.0)
    fine = other.take()
    assert fine is not None and fine.token_ids == [6, 7]
    assert fine.finish_reason is FinishReason.LENGTH
    assert fine.draft_token_ids == [None, None] and len(core) == 0


def test_nothing_follows_malformed_extras() -> None:
    core = make_core()
    stream = start(core)
    core.feed(output_frame(Row(stream.key, 0, [5, 6, 7], extras=wrap(b"junk", 0, 3))), 0.0)
    item = stream.take(1)
    assert item is not None and item.token_ids == [5] and item.usage == Usage(3, 1)
    assert item.finish_reason is FinishReason.ERROR
    assert stream.take() is None and stream.over


def test_extras_that_are_missing_end_the_request() -> None:
    core = make_core()
    stream = start(core)
    row = Row(stream.key, 0, [5], extras=wrapped([5], 0), extras_offset=1)
    core.feed(output_frame(row), 0.0)
    item = stream.take()
    assert item is not None and item.finish_reason is FinishReason.ERROR
    assert item.error == "gap: the extras before output token 0 are missing"
    assert core.take_outgoing() == [Cancel(stream.key)]


@pytest.mark.case("B19")
def test_who_had_nothing_to_take_is_not_slow() -> None:
    """Extras larger than a stream may hold comes in pieces, before the token that it is of."""
    core = make_core(stream_bytes=400)
    stream = start(core)
    extras = wrap(pack_extras(RowExtras(custom=b"x" * 5000), 1), 0, 1)
    for at in range(0, len(extras), 500):
        piece = Row(stream.key, 0, [], extras=extras[at : at + 500], extras_offset=at)
        core.feed(output_frame(piece), 0.0)
    core.feed(output_frame(Row(stream.key, 0, [5])), 0.0)
    item = stream.take()
    assert item is not None and item.custom == [(0, b"x" * 5000)]
    row = Row(stream.key, 1, [6] * 50)
    core.feed(output_frame(row), 0.0)
    core.feed(output_frame(Row(stream.key, 51, [6] * 60)), 0.0)  # now there was something
    slow = stream.take()
    assert slow is not None and slow.finish_reason is FinishReason.ERROR
    assert slow.error is not None and slow.error.startswith("slow_consumer")


def test_taking_a_part_of_what_waits_takes_that_part_of_the_extras() -> None:
    core = make_core()
    stream = start(core)
    tokens = [10, 11, 13, 14]
    core.feed(output_frame(Row(stream.key, 0, tokens, extras=wrapped(tokens, 0, b"x"))), 0.0)
    first, second = stream.take(3), stream.take(3)
    assert first is not None and second is not None
    assert first.draft_token_ids == [beside.draft_of(t) for t in tokens[:3]]
    assert second.draft_token_ids == [beside.draft_of(14)]
    assert first.custom == [(0, b"x")] and second.custom is None


def test_an_end_from_elsewhere_has_its_extras_too() -> None:
    core = make_core()
    stream = start(core)
    core.feed(output_frame(Row(stream.key, 0, [5], extras=wrapped([5], 0))), 0.0)
    core.feed(output_frame(Row(stream.key, 0xFFFFFFFF, [], ERROR, error="gone")), 0.0)
    item = stream.take()
    assert item is not None and item.error == "gone"
    assert item.draft_token_ids == [beside.draft_of(5)]


class Reader:
    """A reader of extras that does what a test wants while it reads."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act
        self.read: list[bytes] = []

    def take(self, data: bytes, begin: int, end: int, last: bool) -> None:
        self.read.append(data)
        self.act()

    def usage(self, output_tokens: int, cached: int) -> tuple[int, int | None]:
        return cached, None


def stream_with(act: Callable[[], object]) -> tuple[Inbox, Stream, Reader]:
    reader = Reader(act)
    inbox = Inbox(1 << 20, None, None, lambda prompt_tokens, keep: reader)
    return inbox, Stream(inbox, 1, "r"), reader


@pytest.mark.parametrize("tokens", [[5, 6], []])
def test_a_stream_that_is_dropped_while_its_extras_are_read_gives_nothing(
    tokens: list[int],
) -> None:
    inbox, stream, _ = stream_with(lambda: stream.drop())
    inbox.feed(output_frame(Row(1, 0, tokens, STOP if not tokens else 0, extras=b"x")))
    item = stream.take()
    assert stream.over and (item is None or item.token_ids == [])
    assert stream.take() is None


def test_a_take_within_a_take_gives_each_token_once() -> None:
    taken: list[RequestOutput | None] = []

    def take() -> None:
        if len(reader.read) == 1:
            taken.append(stream.take())

    inbox, stream, reader = stream_with(take)
    inbox.feed(output_frame(Row(1, 0, [5, 6], extras=b"x")))
    taken.append(stream.take())
    assert [item.token_ids for item in taken if item is not None] == [[5, 6]]


def test_an_interrupted_reader_reads_no_bytes_twice_and_its_request_ends_with_an_error() -> None:
    def interrupt() -> None:
        if len(reader.read) == 1:
            raise KeyboardInterrupt

    inbox, stream, reader = stream_with(interrupt)
    inbox.feed(output_frame(Row(1, 0, [5, 6], extras=b"x")))
    with pytest.raises(KeyboardInterrupt):
        stream.take()
    item = stream.take()
    assert (
        item is not None and item.token_ids == [5, 6] and item.error == "extras: KeyboardInterrupt"
    )
    assert b"x" not in reader.read[1:] and stream.over and not stream.live
