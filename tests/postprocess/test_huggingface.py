"""The tokenizer itself decodes where its decoder is no table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.decoders import DecodeStream

from tests.postprocess.small_tokenizers import OTHERS, PIECES, tokenizer_with
from tests.postprocess.vocab import streamed
from tokenpipe.postprocess import Detokenizer, text_options
from tokenpipe.postprocess.huggingface import vocabulary_of


@pytest.mark.parametrize("kind", ["bpe", "replace across"])
@settings(max_examples=60, deadline=None)
@given(ids=st.lists(st.integers(0, len(PIECES) + 3), max_size=20), skip=st.booleans())
def test_what_is_no_table_is_decoded_by_the_tokenizer(
    kind: str, ids: list[int], skip: bool
) -> None:
    tokenizer = tokenizer_with(OTHERS[kind])
    vocabulary = vocabulary_of(tokenizer)
    assert "decoder" in vocabulary.no_table_reason
    options = text_options(skip_special_tokens=skip)
    stream = DecodeStream(skip_special_tokens=skip)
    expected = [stream.step(tokenizer, i) or "" for i in ids]
    deltas = streamed(vocabulary, [[i] for i in ids], options)
    assert deltas[:-1] == expected
    whole = tokenizer.decode(ids, skip_special_tokens=skip)
    assert "".join(deltas) == whole or not whole.startswith("".join(expected))


def test_stops_are_found_in_what_a_tokenizer_decodes() -> None:
    vocabulary = vocabulary_of(tokenizer_with(OTHERS["bpe"]))
    don, t = PIECES.index("don"), PIECES.index("'t")
    detokenizer = Detokenizer(vocabulary, text_options(stop=["n't"]))
    assert [detokenizer.feed([don]), detokenizer.feed([t]), detokenizer.end()] == ["do", "", ""]
    assert detokenizer.stop_reason == "n't"
