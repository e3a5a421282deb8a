"""Text through the table: however rows, binds, flushes and preemptions fall, it is the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.postprocess.vocab import cut, real
from tests.processor.rig import LANE, Rig, Row
from tests.processor.text_model import SIZE, WORDS, expected
from tokenpipe.postprocess import text_options
from tokenpipe.types import RowStatus
from tokenpipe.wire import Abort, HandleFinished, HandleRescheduled, Preempt

EOS = (0, 5)
VOCAB = real("gpt2_style").vocabulary.table
BYTES = {word: i for i, word in WORDS.items() if len(word) == 1}
TOKENS = st.lists(
    st.one_of(
        st.sampled_from([BYTES[bytes([b])] for b in b"abab" + "é€".encode()]),
        st.sampled_from([*EOS, 0]),
        st.integers(0, 600),
    ),
    min_size=1,
    max_size=24,
)
STOPS = st.lists(st.text("abé€", min_size=1, max_size=4), max_size=3, unique=True)


def text_rig(**options: Any) -> Rig:
    return Rig(vocab=VOCAB, vocab_size=SIZE, eos_token_ids=EOS, **options)


def text_of(
    stop: list[str] | tuple[str, ...] = (), include: bool = False, prompt: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Return the fields of a Bind that are about text."""
    options = text_options(prompt, stop, include_stop_str_in_output=include)
    return {"text": True, **options._asdict()}


def got(rig: Rig, key: int = 9) -> tuple[list[int], str, int, int, int]:
    s = rig.stream(key)
    return s.tokens, s.text.decode(), s.finish, s.stop_reason, s.stop_string


def tokens_of(text: str) -> list[int]:
    return [BYTES[bytes([b])] for b in text.encode()]


@pytest.mark.case("B55")
@pytest.mark.case("B58")
@pytest.mark.case("B61")
@settings(max_examples=400, deadline=None)
@given(
    tokens=TOKENS,
    cuts=st.lists(st.integers(0, 24), max_size=8),
    same_frame=st.lists(st.booleans(), min_size=10, max_size=10),
    k=st.sampled_from([-1, -1, 0, 2]),
    max_tokens=st.integers(1, 26),
    min_tokens=st.integers(0, 8),
    ignore_eos=st.booleans(),
    stop=STOPS,
    include=st.booleans(),
    prompt=st.lists(st.sampled_from([BYTES[bytes([b])] for b in "a€".encode()]), max_size=4),
    bind_at=st.integers(0, 9),
    flush_at=st.integers(0, 9),
    max_bytes=st.sampled_from([1, 80, 1 << 20]),
)
def test_outcome_is_that_of_the_plain_sequence(
    tokens: list[int],
    cuts: list[int],
    same_frame: list[bool],
    k: int,
    max_tokens: int,
    min_tokens: int,
    ignore_eos: bool,
    stop: list[str],
    include: bool,
    prompt: list[int],
    bind_at: int,
    flush_at: int,
    max_bytes: int,
) -> None:
    rig = text_rig()
    handle = rig.new_handle()
    low = min(min_tokens, max_tokens)

    def bind() -> None:
        rig.bind(
            9,
            handle=handle,
            max_tokens=max_tokens,
            min_tokens=low,
            ignore_eos=ignore_eos,
            **text_of(stop, include, tuple(prompt)),
        )

    pending: list[Row] = []
    rows = cut(tokens, cuts)
    for i, row in enumerate(rows):
        if i == min(bind_at, len(rows) - 1):
            bind()
        pending.append(Row(handle, row, k=k))
        if not same_frame[i]:
            rig.feed(*pending)
            pending = []
        if i == flush_at:
            rig.flush(max_bytes=max_bytes)
    rig.feed(*pending)
    rig.flush(max_bytes=max_bytes)
    want = expected(tokens, max_tokens, low, () if ignore_eos else EOS, stop, include, prompt)
    assert got(rig) == want
    assert rig.stream(9).ks == [k] * len(want.tokens)
    reported = rig.reports()
    if want.finish:
        assert reported == [
            HandleFinished(
                handle, want.finish, want.stop_reason, len(want.tokens), "", want.stop_string
            )
        ]
    else:
        assert not reported
    assert rig.processor.unsent_bytes(0) == 0


@pytest.mark.case("B55")
@pytest.mark.case("B62")
@settings(max_examples=250, deadline=None)
@given(
    tokens=TOKENS,
    preempt_at=st.lists(st.integers(0, 6), min_size=3, max_size=3),
    depth=st.integers(0, 2),
    width=st.integers(1, 4),
    max_tokens=st.integers(1, 26),
    stop=STOPS,
    include=st.booleans(),
)
def test_a_preemption_anywhere_changes_nothing(
    tokens: list[int],
    preempt_at: list[int],
    depth: int,
    width: int,
    max_tokens: int,
    stop: list[str],
    include: bool,
) -> None:
    """In the middle of a character and of a stop, too; and what was held back is handed on."""
    rig = text_rig(ranks=2)
    want = expected(tokens, max_tokens, 0, EOS, stop, include)
    have: tuple[int, ...] = ()
    for turn, (slot, dp) in enumerate([(0, 0), (3, 0), (1, 1), (2, 1)]):
        rest = tokens[len(have) :]
        rows = [rest[i : i + width] for i in range(0, len(rest), width)]
        until = preempt_at[turn] if turn < 3 else len(rows)
        handle = rig.bind(
            9, slot=slot, dp=dp, max_tokens=max_tokens, output_token_ids=have,
            **text_of(stop, include),
        )  # fmt: skip
        for row in rows[:until]:
            rig.feed(Row(handle, row), dp=dp)
        if turn == 3:
            break
        rig.command(Preempt(handle))
        for row in rows[until : until + depth]:
            rig.feed(Row(handle, row), dp=dp)
        rig.feed(Row(handle, (), RowStatus.DRAINED), dp=dp)
        (outcome,) = rig.ended()
        if isinstance(outcome, HandleFinished):
            break
        assert isinstance(outcome, HandleRescheduled)
        have = outcome.output_token_ids
        so_far = expected(have, max_tokens, 0, EOS, stop, include)
        assert rig.stream(9).text.decode() == so_far.text, "a function of the tokens alone"
        assert outcome.text_offset == len(so_far.text.encode())
        ended = expected(have, max(1, len(have)), 0, (), (), include).text if have else ""
        assert so_far.text + outcome.text_tail.decode() == ended
    rig.flush()
    assert got(rig) == want


@pytest.mark.case("B58")
@pytest.mark.parametrize(
    ("row", "fields", "tokens", "text", "end"),
    [
        ("a!b", {"max_tokens": 4, "ids": "!"}, 2, "a", "token"),
        ("a!b", {"max_tokens": 2, "ids": "!"}, 2, "a", "token"),
        ("ab!", {"max_tokens": 2, "ids": "!"}, 2, "ab", "length"),
        ("abc!", {"stop": ("bc",), "ids": "!"}, 3, "a", "string"),
        ("ab!c", {"stop": ("c",), "ids": "!"}, 3, "ab", "token"),
        ("abc", {"stop": ("bc",), "ids": "c"}, 3, "a", "string"),
        ("abc", {"max_tokens": 3, "stop": ("bc",)}, 3, "a", "string"),
        ("abc", {"max_tokens": 2, "stop": ("bc",)}, 2, "ab", "length"),
        ("a%b", {"max_tokens": 2}, 2, "a", "token"),
        ("a%b", {"max_tokens": 3, "include": True}, 2, "a%", "token"),
    ],
)  # fmt: skip
def test_which_end_wins(row: str, fields: dict[str, Any], tokens: int, text: str, end: str) -> None:
    rig = text_rig()
    handle = rig.bind(
        9,
        max_tokens=fields.get("max_tokens", 9),
        stop_token_ids=tokens_of(fields.get("ids", "")),
        **text_of(fields.get("stop", ()), fields.get("include", False)),
    )
    rig.feed(Row(handle, tokens_of(row)))
    rig.flush()
    ids, shown, finish, reason, string = got(rig)
    assert (ids, shown) == (tokens_of(row)[:tokens], text)
    assert (finish, reason >= 0, string) == {
        "token": (1, True, -1),
        "string": (1, False, 0),
        "length": (2, False, -1),
    }[end]


@pytest.mark.case("B56")
@pytest.mark.parametrize("ends", ["eos", "length", "abort", "error"])
def test_what_was_held_back_comes_with_any_end(ends: str) -> None:
    rig = text_rig()
    handle = rig.bind(9, max_tokens=8, **text_of(["bcdef"]))
    rig.feed(Row(handle, tokens_of("abc")))
    rig.flush()
    assert got(rig)[1] == "a"
    match ends:
        case "eos":
            rig.feed(Row(handle, [EOS[0]]))
        case "length":
            rig.feed(Row(handle, tokens_of("bcdeb")))
        case "abort":
            rig.command(Abort(handle))
        case _:
            rig.feed(Row(handle, [], RowStatus.ERROR))
    rig.flush()
    assert got(rig)[1] == ("abcbcdeb" if ends == "length" else "abc")
    assert got(rig)[2] == {"eos": 1, "length": 2, "abort": 3, "error": 4}[ends]


def test_a_request_that_wants_no_text_has_none() -> None:
    rig = text_rig()
    handles = [rig.bind(1, slot=0), rig.bind(2, slot=1, **text_of())]
    rig.feed(*(Row(h, tokens_of("ab")) for h in handles))
    rig.flush()
    assert (got(rig, 1)[1], got(rig, 2)[1]) == ("", "ab")


def test_without_a_vocabulary_there_is_no_text() -> None:
    rig = Rig()
    handle = rig.bind(9, **text_of(["a"]))
    rig.feed(Row(handle, [5, 6]))
    rig.flush()
    assert got(rig)[:2] == ([5, 6], "")


def test_a_client_that_is_shed_keeps_what_it_has() -> None:
    rig = text_rig(merge_bytes=200)
    handle = rig.bind(9, **text_of(["bx"]))
    rig.feed(Row(handle, tokens_of("ab")))
    rig.flush()
    for _ in range(4):
        rig.feed(Row(handle, tokens_of("a" * 30)))
    rig.flush()
    ids, text, finish, *_ = got(rig)
    assert (text, finish) == ("a", 4)
    assert ids == tokens_of("ab")
    assert rig.processor.unsent_bytes(0) == 0


@settings(max_examples=60, deadline=None)
@given(max_bytes=st.integers(0, 300), rows=st.lists(st.text("aé€😀", max_size=9), max_size=12))
def test_flushes_of_any_size_carry_all_text_once(max_bytes: int, rows: list[str]) -> None:
    rig = text_rig()
    handles = [rig.bind(key, slot=key, max_tokens=1000, **text_of()) for key in range(3)]
    for i, row in enumerate(rows):
        rig.feed(Row(handles[i % 3], tokens_of(row), k=i % 3 - 1))
        frame = rig.processor.flush(0, LANE, max_bytes)
        if frame is not None:
            rig.clients[0].apply(frame)
            assert len(frame) <= max(max_bytes, 40) + 240
            for key in range(3):  # whoever has the tokens has their text
                ids, text, *_ = got(rig, key)
                assert text.startswith(expected(ids, 1000).text)
    rig.flush(max_bytes=max_bytes)
    for key in range(3):
        assert got(rig, key)[1] == "".join(rows[key::3])
    assert rig.processor.unsent_bytes(0) == 0


@pytest.mark.case("F08")
def test_samples_share_their_stops_and_end_one_by_one() -> None:
    rig = text_rig()
    fields = text_of(("xx", "ab"))
    handles = [rig.bind(key, slot=key, **fields) for key in range(3)]
    rig.command(Abort(handles[0]))
    a, b = BYTES[b"a"], BYTES[b"b"]
    rig.feed(Row(handles[1], [a]), Row(handles[2], [b, a]))
    rig.feed(Row(handles[1], [b]), Row(handles[2], [a]))
    assert [(rig.stream(key).text, rig.stream(key).finish) for key in range(3)] == [
        (b"", 3), (b"", 1), (b"ba", 0)
    ]  # fmt: skip
    rig.feed(Row(handles[2], [b]))
    assert (rig.stream(2).text, rig.stream(2).stop_string) == (b"ba", 1)
