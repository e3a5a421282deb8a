"""Laws 3 and 4 for all that a user reads: however a request's tokens are split into rows, flushes,
bindings and outputs, and however often frames come again, its text, ids, logprobs, extras, usage
and end are those of the plain sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.test_client_core import make_core
from tests.processor import beside
from tests.processor.rig import LANE, Row, logprob_of
from tests.processor.test_text import BYTES, EOS, STOPS, text_of, text_rig
from tests.processor.text_model import expected
from tokenpipe._core import Stream
from tokenpipe.client import ClientCore
from tokenpipe.extras import RowExtras
from tokenpipe.types import (
    FINISH_CODES,
    OutputExtras,
    RequestOutput,
    RequestOutputKind,
    RowStatus,
    SamplingParams,
    Usage,
)
from tokenpipe.wire import HandleFinished, HandleRescheduled, Preempt, pack_extras

PROMPT, CACHED, REASONING = (1, 2, 3), 2, 5
TOKENS = st.lists(
    st.sampled_from([*(BYTES[bytes([b])] for b in b"abab" + "\u00e9\u20ac".encode()), 300, *EOS]),
    min_size=1,
    max_size=20,
)


class Reader:
    """A client that takes what is there now and then, and gets some frames again."""

    def __init__(self, core: ClientCore[Stream], stream: Stream, kind: RequestOutputKind) -> None:
        self.core, self.stream, self.kind = core, stream, kind
        self.frames: list[bytes] = []
        self.outputs: list[RequestOutput] = []

    def feed(self, frame: bytes, again: int) -> None:
        """Feed a frame, and the last `again` ones before it once more on either side."""
        for old in self.frames[len(self.frames) - again :]:
            self.core.feed(old, 0.0)
        self.core.feed(frame, 0.0)
        self.frames.append(frame)
        for old in self.frames[len(self.frames) - again :]:
            self.core.feed(old, 0.0)

    def take(self, limit: int) -> None:
        while (output := self.stream.take(limit)) is not None:
            self.outputs.append(output)

    def whole(self) -> RequestOutput:
        """Return all outputs as one."""
        if self.kind != RequestOutputKind.DELTA:
            return self.outputs[-1]
        extras = OutputExtras()
        made = RequestOutput("", 0, 0, [], extras=extras)
        columns = {"sampling_masks": [], "draft_token_ids": [], "draft_logprobs": []}  # type: ignore[var-annotated]
        for out in self.outputs:
            assert out.offset == len(made.token_ids)
            made.token_ids += out.token_ids
            made.text += out.text
            made.logprobs = (made.logprobs or []) + (out.logprobs or [])
            for name, column in columns.items():
                column += getattr(out, name) or [None] * len(out.token_ids)
            extras.prompt_logprobs = (extras.prompt_logprobs or []) + (out.prompt_logprobs or [])
            extras.custom = (extras.custom or []) + (out.custom or [])
        for name, column in columns.items():
            setattr(extras, name, column)
        return made


@pytest.mark.case("B55")
@pytest.mark.case("B58")
@settings(max_examples=400, deadline=None)
@given(
    tokens=TOKENS,
    cuts=st.lists(st.integers(0, 20), max_size=7),
    preempt_at=st.lists(st.integers(0, 8), max_size=2),
    carries=st.lists(st.booleans(), min_size=12, max_size=12),
    k=st.sampled_from([-1, 0, 2]),
    stop=STOPS,
    stop_ids=st.lists(st.just(BYTES[b"b"]), max_size=1),
    low=st.integers(0, 6),
    more=st.integers(1, 20),
    interval=st.sampled_from([1, 4]),
    kind=st.sampled_from(RequestOutputKind),
    max_bytes=st.sampled_from([1, 100, 1 << 20]),
    flushes=st.lists(st.integers(0, 3), min_size=12, max_size=12),
    takes=st.lists(st.integers(-1, 3), min_size=12, max_size=12),
    again=st.lists(st.integers(0, 3), min_size=4, max_size=4),
)
def test_all_that_a_user_reads(
    tokens: list[int],
    cuts: list[int],
    preempt_at: list[int],
    carries: list[bool],
    k: int,
    stop: list[str],
    stop_ids: list[int],
    low: int,
    more: int,
    interval: int,
    kind: RequestOutputKind,
    max_bytes: int,
    flushes: list[int],
    takes: list[int],
    again: list[int],
) -> None:
    rig = text_rig(ranks=2)
    core = make_core()
    most = min(low + more, len(tokens))  # so that it always ends
    low = min(low, most)
    params = SamplingParams(max_tokens=most, min_tokens=low, stop=tuple(stop), output_kind=kind)
    (stream,) = core.open(core.expand(PROMPT, params))
    reader = Reader(core, stream, kind)
    fields = {"max_tokens": params.max_tokens, "min_tokens": low, "stop_token_ids": stop_ids}
    fields |= {"stream_interval": interval, "cached_tokens": CACHED, **text_of(stop)}

    def bind(slot: int, ids: Sequence[int] = (), extras_offset: int = 0) -> int:
        """Bind it, and run its prefill: in two chunks, that come again with each binding."""
        made = rig.bind(
            stream.key,
            slot=slot,
            dp=slot % 2,
            output_token_ids=tuple(ids),
            extras_offset=extras_offset,
            **fields,  # type: ignore[arg-type]
        )
        for at in (0, 1):
            chunk = beside.row_extras((), prompt=1, at=at + 1)
            chunk = RowExtras(chunk.prompt_logprobs, reasoning_tokens=REASONING)
            rig.feed(Row(made, (), extras=pack_extras(chunk, 0)), dp=slot % 2)
        return made

    def flush(times: int) -> None:
        for _ in range(times):
            frame = rig.processor.flush(0, LANE, max_bytes)
            if frame is not None:
                reader.feed(frame, again[len(reader.frames) % 4])

    handle, slot = bind(0), 0
    carried: list[bool] = []
    custom: list[tuple[int, bytes]] = []
    edges = [0, *sorted(min(c, len(tokens)) for c in cuts), len(tokens)]
    for i, (a, b) in enumerate(pairwise(edges)):
        extras = beside.packed(tokens[a:b], bytes([i])) if carries[i] and a < b else b""
        carried += [bool(extras)] * (b - a)
        custom += [(a, bytes([i]))] if extras else []
        rig.feed(Row(handle, tokens[a:b], k=k, extras=extras), dp=slot % 2)
        flush(flushes[i])
        if takes[i] >= 0:
            reader.take(takes[i])
        if i in preempt_at:
            rig.command(Preempt(handle))
            rig.feed(Row(handle, (), RowStatus.DRAINED), dp=slot % 2)
            while rig.processor.dirty_clients():
                flush(1)
            outcome = rig.reports()[0]
            if isinstance(outcome, HandleFinished):
                break
            assert isinstance(outcome, HandleRescheduled)
            slot += 1
            handle = bind(slot, outcome.output_token_ids, outcome.extras_offset)
    while rig.processor.dirty_clients():
        flush(1)
    ends = (*stop_ids, *EOS)
    ids, text, finish, reason, which = expected(tokens, most, low, ends, stop)
    reader.take(0)
    got, last = reader.whole(), reader.outputs[-1]
    assert stream.over and last.finish_reason is FINISH_CODES[finish]
    assert {out.finish_reason for out in reader.outputs[:-1]} <= {None}
    assert got.token_ids == ids
    assert got.text == text
    stop_reason: Any = stop[which] if which >= 0 else reason if reason >= 0 else None
    assert last.stop_reason == stop_reason
    assert last.usage == Usage(len(PROMPT), len(ids), CACHED, min(REASONING, len(ids)))
    scores = [(list(e.token_ids), list(e.logprobs), e.rank) for e in got.logprobs or []]
    assert scores == ([logprob_of(t, k) for t in ids] if k >= 0 else [])
    assert got.extras is not None
    beside.check(got.extras, ids, carried[: len(ids)])
    assert got.prompt_logprobs == beside.prompt_of(3)
    assert (got.custom or []) == [entry for entry in custom if entry[0] < len(ids)]
