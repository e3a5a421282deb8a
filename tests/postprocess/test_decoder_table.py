"""Which decoders are a table, and that a table gives the text of its decoder."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from tests.postprocess.small_tokenizers import OTHERS, PIECES, TABLES, tokenizer_with
from tests.postprocess.vocab import cut, streamed
from tokenpipe.postprocess import text_options
from tokenpipe.postprocess.huggingface import vocabulary_of


@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=120, deadline=None)
@given(
    ids=st.lists(st.integers(0, len(PIECES) + 4), max_size=20),
    cuts=st.lists(st.integers(0, 20), max_size=6),
    skip=st.booleans(),
)
def test_a_table_reads_as_the_decoder(
    kind: str, ids: list[int], cuts: list[int], skip: bool
) -> None:
    tokenizer = tokenizer_with(TABLES[kind])
    vocabulary = vocabulary_of(tokenizer)
    assert not vocabulary.no_table_reason
    if "ByteFallback" in str(tokenizer.decoder):  # bytes that are no characters: another test
        fixed: list[int] = []
        for i in ids:
            fixed += [PIECES.index("<0xC3>"), PIECES.index("<0xA9>")] if i in (13, 14) else [i]
        ids = fixed
    deltas = streamed(vocabulary, cut(ids, cuts), text_options(skip_special_tokens=skip))
    assert "".join(deltas) == tokenizer.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("kind", ["ctc", "strip the end", "strip each end"])
def test_a_decoder_that_is_no_table_says_why(kind: str) -> None:
    assert "decoder" in vocabulary_of(tokenizer_with(OTHERS[kind])).no_table_reason


def test_spaces_between_added_tokens() -> None:
    vocabulary = vocabulary_of(tokenizer_with(decoders.WordPiece()))
    the, tool, special = 0, len(PIECES) + 2, len(PIECES)
    ids = [the, tool, special, tool, the, tool]
    for spaces, text in ((True, "\u2581the <tool> <s> <tool> \u2581the <tool>"),
                         (False, "\u2581the <tool><s><tool> \u2581the <tool>")):  # fmt: skip
        options = text_options(skip_special_tokens=False, spaces_between_special_tokens=spaces)
        assert "".join(streamed(vocabulary, [[i] for i in ids], options)) == text
