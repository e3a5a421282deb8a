"""How tokens are split into rows and steps, and when the bind comes, never changes the result."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.processor import beside
from tests.processor.model import expected
from tests.processor.rig import LANE, Rig, Row
from tokenpipe.types import RowStatus
from tokenpipe.wire import HandleFinished, HandleRescheduled, Preempt

TOKENS = st.lists(st.integers(0, 70), min_size=1, max_size=24)


@settings(max_examples=300, deadline=None)
@given(
    tokens=TOKENS,
    cuts=st.lists(st.integers(0, 24), max_size=8),
    same_frame=st.lists(st.booleans(), min_size=10, max_size=10),
    ks=st.lists(st.sampled_from([-1, 0, 3]), min_size=10, max_size=10),
    max_tokens=st.integers(1, 26),
    min_tokens=st.integers(0, 8),
    ignore_eos=st.booleans(),
    stops=st.lists(st.integers(0, 70), max_size=3),
    bind_at=st.integers(0, 9),
    flush_at=st.integers(0, 9),
    max_bytes=st.sampled_from([1, 80, 1 << 20]),
    carries=st.lists(st.booleans(), min_size=10, max_size=10),
)
def test_result_is_that_of_the_plain_sequence(
    tokens: list[int],
    cuts: list[int],
    same_frame: list[bool],
    ks: list[int],
    max_tokens: int,
    min_tokens: int,
    ignore_eos: bool,
    stops: list[int],
    bind_at: int,
    flush_at: int,
    max_bytes: int,
    carries: list[bool],
) -> None:
    rig = Rig()
    handle = rig.new_handle()

    def bind() -> None:
        rig.bind(
            9,
            handle=handle,
            max_tokens=max_tokens,
            min_tokens=min(min_tokens, max_tokens),
            ignore_eos=ignore_eos,
            stop_token_ids=tuple(stops),
        )

    edges = [0, *sorted(min(c, len(tokens)) for c in cuts), len(tokens)]
    pending: list[Row] = []
    sent_ks: list[int] = []
    carried: list[bool] = []
    custom: list[tuple[int, bytes]] = []
    bound = False
    for i, (a, b) in enumerate(pairwise(edges)):
        if i >= bind_at and not bound:
            bind()
            bound = True
        extras = beside.packed(tokens[a:b], bytes([i])) if carries[i] else b""
        pending.append(Row(handle, tokens[a:b], k=ks[i], extras=extras))
        sent_ks += [ks[i]] * (b - a)
        carried += [carries[i]] * (b - a)
        custom += [(a, bytes([i]))] if carries[i] else []
        if not same_frame[i]:
            rig.feed(*pending)
            pending = []
        if i == flush_at:
            rig.flush(max_bytes=max_bytes)
    rig.feed(*pending)
    if not bound:
        bind()
    rig.flush(max_bytes=max_bytes)
    ids, finish, reason = expected(
        tokens, max_tokens, min(min_tokens, max_tokens), ignore_eos, stops
    )
    got = rig.stream(9)
    assert (got.tokens, got.finish, got.stop_reason) == (ids, finish, reason)
    assert got.ks == sent_ks[: len(ids)]
    read = beside.read(got.extras, len(ids), bool(finish))
    beside.check(read, ids, carried[: len(ids)])
    assert (read.custom or []) == [entry for entry in custom if entry[0] < len(ids)]
    reported = [HandleFinished(handle, finish, reason, len(ids))] if finish else []
    assert rig.reports() == reported


@settings(max_examples=150, deadline=None)
@given(
    tokens=TOKENS,
    preempt_at=st.integers(0, 24),
    depth=st.integers(0, 3),
    width=st.integers(1, 6),
    max_tokens=st.integers(1, 26),
)
def test_a_preemption_at_any_step_changes_nothing(
    tokens: list[int], preempt_at: int, depth: int, width: int, max_tokens: int
) -> None:
    """`depth` more rows come after the preemption and before the worker lets go."""
    rig = Rig(ranks=2)
    ids, finish, reason = expected(tokens, max_tokens)
    slots = [(0, 0), (3, 0), (1, 1)]
    have: tuple[int, ...] = ()
    with_extras = 0

    def row_of(handle: int, row: list[int]) -> Row:
        return Row(handle, row, extras=beside.packed(row))

    for dp, slot in ((dp, slot) for slot, dp in slots):
        rest = tokens[len(have) :]
        rows = [rest[i : i + width] for i in range(0, len(rest), width)]
        handle = rig.bind(
            9,
            slot=slot,
            dp=dp,
            max_tokens=max_tokens,
            output_token_ids=have,
            extras_offset=with_extras,
        )
        rig.feed(Row(handle, (), extras=beside.packed((), prompt=4, at=1)), dp=dp)
        for row in rows[:preempt_at]:
            rig.feed(row_of(handle, row), dp=dp)
        rig.command(Preempt(handle))
        for row in rows[preempt_at : preempt_at + depth]:
            rig.feed(row_of(handle, row), dp=dp)
        rig.feed(Row(handle, (), RowStatus.DRAINED, extras=b"forgotten"), dp=dp)
        (outcome,) = rig.ended()
        if isinstance(outcome, HandleFinished):
            assert outcome == HandleFinished(handle, finish, reason, len(ids))
            break
        assert isinstance(outcome, HandleRescheduled)
        have, with_extras = outcome.output_token_ids, outcome.extras_offset
        assert with_extras == len(rig.stream(9).extras)
    got = rig.stream(9)
    assert got.tokens == ids[: len(got.tokens)]
    assert got.finish in (0, finish)
    assert got.finish == 0 or got.tokens == ids
    extras = beside.read(got.extras, len(got.tokens), bool(got.finish))
    beside.check(extras, got.tokens, [True] * len(got.tokens))
    assert extras.prompt_logprobs == (beside.prompt_of(5) if got.tokens else None)


@given(max_bytes=st.integers(0, 400), rows=st.lists(st.integers(0, 9), max_size=12))
@settings(max_examples=60, deadline=None)
def test_flushes_of_any_size_carry_everything_once(max_bytes: int, rows: list[int]) -> None:
    rig = Rig()
    handles = [rig.bind(key, slot=key) for key in range(3)]
    for i, n in enumerate(rows):
        extras = beside.packed([i + 3] * n, b"x" * n)
        rig.feed(Row(handles[i % 3], [i + 3] * n, k=i % 3 - 1, extras=extras))
        frame = rig.processor.flush(0, LANE, max_bytes)
        if frame is not None:
            rig.clients[0].apply(frame)
            assert len(frame) <= max(max_bytes, 40) + 200
    for key in range(3):
        got = rig.stream(key)
        assert got.tokens == [i + 3 for i, n in enumerate(rows) for _ in range(n) if i % 3 == key]
        beside.check(beside.read(got.extras, len(got.tokens)), got.tokens, [True] * len(got.tokens))
