"""Stop strings: found wherever tokens split them, held back only while they may come true."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.postprocess.vocab import cut, real, streamed
from tokenpipe.postprocess import Detokenizer, text_options

LETTERS = st.text("abé😀", max_size=30)
STOPS = st.lists(st.text("abé😀", min_size=1, max_size=5), max_size=4)


def ids_of(text: str) -> list[int]:
    """One token a byte, the hardest case."""
    return [real("gpt2_style").words[bytes([b])] for b in text.encode()]


def first_stop(text: str, stops: list[str], counts_from: int = 0) -> tuple[int, int, int] | None:
    """Return (begin, end, which) of the stop that is complete first, of those the longest.

    `counts_from`: its last character must be complete with that token (a byte each) or a later one.
    """
    for end in range(1, len(text) + 1):
        if len(text[:end].encode()) <= counts_from:
            continue
        ending = [s for s in stops if text[:end].endswith(s)]
        if ending:
            longest = max(ending, key=len)
            return end - len(longest), end, stops.index(longest)
    return None


@pytest.mark.case("B55")
@settings(max_examples=500, deadline=None)
@given(
    text=LETTERS,
    stops=STOPS,
    cuts=st.lists(st.integers(0, 60), max_size=12),
    include=st.booleans(),
    ignored=st.integers(0, 20),
)
def test_text_ends_at_the_first_stop(
    text: str, stops: list[str], cuts: list[int], include: bool, ignored: int
) -> None:
    ids = ids_of(text)
    options = text_options(stop=stops, include_stop_str_in_output=include)
    detokenizer = Detokenizer(real("gpt2_style").vocabulary, options)
    deltas, read = [], 0
    for row in cut(ids, cuts):
        deltas.append(detokenizer.feed(row, max(0, min(len(row), ignored - read))))
        read += len(row)
        sent = "".join(deltas)
        whole = text.encode()[:read].decode(errors="ignore")
        if detokenizer.stop_reason is None:
            held = whole[len(sent) :]
            assert whole.startswith(sent)
            assert not held or any(s.startswith(held) and s != held for s in stops)
            longest = max(
                (n for s in stops for n in range(1, len(s)) if whole.endswith(s[:n])), default=0
            )
            assert len(held) == longest, "held back as much as may begin a stop, and no more"
    deltas.append(detokenizer.end())
    found = first_stop(text, stops, ignored)
    if found is None:
        assert ("".join(deltas), detokenizer.stop_reason) == (text, None)
    else:
        begin, end, which = found
        assert "".join(deltas) == text[: end if include else begin]
        assert detokenizer.stop_reason == stops[which]
        assert detokenizer.tokens == len(text[:end].encode())


@pytest.mark.case("B55")
def test_nothing_of_a_stop_over_four_tokens_leaks() -> None:
    vocabulary = real("tekken")
    rows = [vocabulary.encode(part) for part in ("one two ", "END", "-OF", "-LI", "ST and more")]
    assert streamed(vocabulary.vocabulary, rows, text_options(stop=["END-OF-LIST"])) == [
        "one two ", "", "", "", "", "",
    ]  # fmt: skip
    options = text_options(stop=["END-OF-LIST"], include_stop_str_in_output=True)
    assert "".join(streamed(vocabulary.vocabulary, rows, options)) == "one two END-OF-LIST"


@pytest.mark.case("B55")
def test_a_stop_inside_a_token() -> None:
    vocabulary = real("tekken")
    detokenizer = Detokenizer(vocabulary.vocabulary, text_options(stop=["Rom"]))
    assert detokenizer.feed(vocabulary.encode("All roads lead to Rome and")) == "All roads lead to "
    assert (detokenizer.end(), detokenizer.stop_reason) == ("", "Rom")


@pytest.mark.case("B55")
def test_a_false_alarm_is_released_at_once() -> None:
    vocabulary = real("tekken")
    rows = [vocabulary.encode(part) for part in ("a END", "-OF", "-TIMES")]
    deltas = streamed(vocabulary.vocabulary, rows, text_options(stop=["END-OF-LIST"]))
    assert deltas == ["a ", "", "END-OF-TIMES", ""]


@pytest.mark.case("B56")
def test_a_long_stop_holds_nothing_of_a_short_answer() -> None:
    vocabulary = real("tekken")
    ids = vocabulary.encode("Yes, it is")
    deltas = streamed(vocabulary.vocabulary, [[i] for i in ids], text_options(stop=["#" * 40]))
    assert deltas == [vocabulary.tokenizer.decode([i]) for i in ids] + [""]


@pytest.mark.case("B56")
def test_an_answer_that_contains_the_beginning_of_a_stop() -> None:
    vocabulary = real("tekken")
    rows = [vocabulary.encode(part) for part in ("so <", "/think", "> that </thin")]
    deltas = streamed(vocabulary.vocabulary, rows, text_options(stop=["</thinking>"]))
    assert deltas == ["so ", "", "</think> that ", "</thin"]


def test_of_stops_that_end_together_the_longest_counts() -> None:
    options = text_options(stop=["c", "abc", "bc", "abcd"])
    detokenizer = Detokenizer(real("gpt2_style").vocabulary, options)
    assert detokenizer.feed(ids_of("xabcd")) == "x"
    assert (detokenizer.stop_reason, detokenizer.tokens) == ("abc", 4)


@pytest.mark.parametrize("stop", ["", "x" * 16385])
def test_a_stop_that_cannot_be_is_refused(stop: str) -> None:
    with pytest.raises(ValueError, match="stop strings"):
        Detokenizer(real("gpt2_style").vocabulary, text_options(stop=[stop]))


def test_many_long_stops() -> None:
    stops = [f"<stop {i}/>" for i in range(1000)]
    detokenizer = Detokenizer(real("gpt2_style").vocabulary, text_options(stop=stops))
    assert detokenizer.feed(ids_of("a <stop 99 <stop 998/")) == "a <stop 99 "
    detokenizer.feed(ids_of(">"))
    assert detokenizer.stop_reason == "<stop 998/>"
