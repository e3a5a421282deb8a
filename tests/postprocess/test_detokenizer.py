"""Text put together from deltas is the text of all tokens, whatever the vocabulary and the rows."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.vocabularies import TEXT
from tests.postprocess.vocab import NAMES, cut, random_ids, real, streamed
from tokenpipe.postprocess import Detokenizer, text_options

CUTS = st.lists(st.integers(0, 60), max_size=12)
SEED = st.integers(0, 1 << 40)
each_vocabulary = pytest.mark.parametrize("name", NAMES)


@pytest.mark.case("B62")
@each_vocabulary
@settings(max_examples=250, deadline=None)
@given(seeds=st.lists(SEED, max_size=40), cuts=CUTS, skip=st.booleans())
def test_deltas_make_up_the_decode_of_all(
    name: str, seeds: list[int], cuts: list[int], skip: bool
) -> None:
    ids = random_ids(name, seeds)
    vocabulary = real(name)
    deltas = streamed(vocabulary.vocabulary, cut(ids, cuts), text_options(skip_special_tokens=skip))
    assert "".join(deltas) == vocabulary.tokenizer.decode(ids, skip_special_tokens=skip)


@pytest.mark.case("B62")
@each_vocabulary
@settings(max_examples=80, deadline=None)
@given(text=st.text(max_size=40), cuts=CUTS, data=st.data())
def test_real_text_survives_any_tokenization(
    name: str, text: str, cuts: list[int], data: st.DataObject
) -> None:
    """Characters are split over tokens at random, emoji of four bytes into up to four."""
    vocabulary = real(name)
    single = vocabulary.spelled or {b: vocabulary.words[bytes([b])] for b in range(256)}
    ids = []
    for piece in re.split("(..)", text, flags=re.DOTALL):
        if data.draw(st.booleans()):
            ids += [single[b] for b in piece.encode()]
        else:
            ids += vocabulary.encode(piece)
    deltas = streamed(vocabulary.vocabulary, cut(ids, cuts))
    assert "".join(deltas) == vocabulary.tokenizer.decode(ids)
    assert all("\ufffd" not in d for d in deltas) or "\ufffd" in text


@each_vocabulary
def test_a_long_multilingual_text_token_by_token(name: str) -> None:
    vocabulary = real(name)
    ids = vocabulary.encode(TEXT * 3)
    deltas = streamed(vocabulary.vocabulary, [[i] for i in ids])
    assert "".join(deltas) == vocabulary.tokenizer.decode(ids) == TEXT * 3


@pytest.mark.case("B62")
@each_vocabulary
@settings(max_examples=150, deadline=None)
@given(seeds=st.lists(SEED, max_size=60), at=st.integers(0, 60), skip=st.booleans())
def test_a_prompt_primes_and_is_not_shown(name: str, seeds: list[int], at: int, skip: bool) -> None:
    ids = random_ids(name, seeds)
    vocabulary = real(name)
    prompt, rest = ids[:at], ids[at:]
    shown = Detokenizer(vocabulary.vocabulary, text_options(skip_special_tokens=skip)).feed(prompt)
    options = text_options(prompt, skip_special_tokens=skip)
    primed = "".join(streamed(vocabulary.vocabulary, [rest], options))
    assert shown + primed == vocabulary.tokenizer.decode(ids, skip_special_tokens=skip)


@pytest.mark.case("B62")
def test_a_prompt_that_ends_inside_a_character() -> None:
    vocabulary = real("gpt2_style")
    euro = [vocabulary.words[bytes([b])] for b in "€".encode()]
    assert streamed(vocabulary.vocabulary, [euro[2:]], text_options(euro[:2])) == ["€", ""]
    word = vocabulary.words[b"a"]
    assert streamed(vocabulary.vocabulary, [[word]], text_options(euro[:2])) == ["\ufffda", ""]


@pytest.mark.case("B62")
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_an_emoji_comes_whole_over_any_number_of_rows(rows: int) -> None:
    for name in NAMES:
        vocabulary = real(name)
        single = vocabulary.spelled or {b: vocabulary.words[bytes([b])] for b in range(256)}
        ids = [single[b] for b in "😀".encode()]
        split = [*([i] for i in ids[: rows - 1]), ids[rows - 1 :]]
        deltas = streamed(vocabulary.vocabulary, split)
        assert [d for d in deltas if d] == ["😀"]


@pytest.mark.case("B62")
@settings(max_examples=300, deadline=None)
@given(run=st.lists(st.integers(0, 255), max_size=12), cuts=CUTS)
def test_invalid_bytes_of_a_byte_level_vocabulary(run: list[int], cuts: list[int]) -> None:
    """Also where they never become a character, and where the sequence ends inside of one."""
    vocabulary = real("gpt2_style")
    ids = [vocabulary.words[bytes([b])] for b in run]
    text = "".join(streamed(vocabulary.vocabulary, cut(ids, cuts)))
    assert text == vocabulary.tokenizer.decode(ids) == bytes(run).decode(errors="replace")


@pytest.mark.case("B62")
@settings(max_examples=300, deadline=None)
@given(run=st.lists(st.integers(0, 255), max_size=12), cuts=CUTS)
def test_invalid_bytes_of_a_vocabulary_with_fallback(run: list[int], cuts: list[int]) -> None:
    """A character is written when it is complete, each other byte is one U+FFFD."""
    vocabulary = real("sentencepiece")
    ids = [*vocabulary.encode("x"), *(vocabulary.spelled[b] for b in run)]
    expected, at = "", 0
    raw = bytes(run)
    while at < len(raw):
        for size in (1, 2, 3, 4):
            try:
                expected += raw[at : at + size].decode()
                at += size
                break
            except UnicodeDecodeError:
                continue
        else:
            expected += "\ufffd"
            at += 1
    text = "".join(streamed(vocabulary.vocabulary, cut(ids, cuts)))
    assert text == "x" + expected
    try:
        raw.decode()
    except UnicodeDecodeError:
        return
    assert text == vocabulary.tokenizer.decode(ids)


def test_a_dangling_tail_is_written_once_at_the_end() -> None:
    vocabulary = real("tekken")
    detokenizer = Detokenizer(vocabulary.vocabulary)
    half = [vocabulary.words[bytes([b])] for b in "漢".encode()[:2]]
    assert detokenizer.feed([*vocabulary.encode("x "), *half]) == "x "
    assert (detokenizer.end(), detokenizer.end()) == ("\ufffd", "")


def test_half_a_character_that_turns_out_to_be_something_else() -> None:
    vocabulary = real("tekken")
    half = [vocabulary.words[bytes([b])] for b in "漢".encode()[:2]]
    ids = [*vocabulary.encode("x 漢"), *half, vocabulary.words[b"a"], vocabulary.words[b"b"]]
    deltas = streamed(vocabulary.vocabulary, [[i] for i in ids])
    assert "".join(deltas) == "x 漢\ufffdab"
    assert deltas[-3:] == ["\ufffda", "b", ""]


def test_added_tokens_stand_raw_behind_one_another_on_request() -> None:
    vocabulary = real("sentencepiece")
    ids = [1, 2, *vocabulary.encode(" x"), 2]
    options = text_options(skip_special_tokens=False, spaces_between_special_tokens=False)
    deltas = streamed(vocabulary.vocabulary, [ids], options)
    assert "".join(deltas) == "<s></s> x</s>"


@settings(max_examples=50, deadline=None)
@given(ids=st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=5))
def test_ids_outside_of_the_vocabulary_read_as_nothing(ids: list[int]) -> None:
    vocabulary = real("gpt2_style")
    outside = [i for i in ids if not 0 <= i < vocabulary.vocabulary.size]
    word = vocabulary.words[b"a"]
    assert "".join(streamed(vocabulary.vocabulary, [[word, *outside, word]])) == "aa"
