"""The tokenizer itself decodes where its decoder is no table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from tokenizers.decoders import DecodeStream

from tests.postprocess.small_tokenizers import OTHERS, PIECES, tokenizer_with
from tests.postprocess.vocab import streamed
from tokenpipe.postprocess import Detokenizer, text_options
from tokenpipe.postprocess.huggingface import (
    MOST_WAITING,
    ForeignDecoder,
    shared_of,
    vocabulary_of,
)


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


def bytes_beside_words() -> Tokenizer:
    """Return a tokenizer whose decoder is no table, with 256 bytes, two words and a special id."""
    words = {f"<0x{b:02X}>": b for b in range(256)} | {"a": 256, "tt": 257}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="a"))
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("tt", "T")]
    )
    tokenizer.add_special_tokens(["<s>"])
    return tokenizer


@pytest.mark.case("F11")
def test_bytes_that_never_become_a_character_are_given_out() -> None:
    detokenizer = Detokenizer(vocabulary_of(bytes_beside_words()))
    deltas = [detokenizer.feed([0xC3]) for _ in range(3 * MOST_WAITING)]
    assert deltas == (["" for _ in range(MOST_WAITING - 1)] + ["\ufffd" * MOST_WAITING]) * 3
    assert detokenizer.feed([*"é".encode(), 256]) == "éa"


@pytest.mark.case("F11")
def test_the_work_for_lone_bytes_does_not_grow() -> None:
    class Counting(ForeignDecoder):
        decoded = 0

        def end(self) -> str:
            Counting.decoded += len(self._ids)
            return super().end()

    tokenizer = bytes_beside_words()
    decoder = Counting(shared_of(tokenizer, 259), True, True)
    for _ in range(1000):
        decoder.step(0xC3)
        assert len(decoder._ids) <= MOST_WAITING
    assert Counting.decoded == 1000


@pytest.mark.case("F11")
def test_ids_without_text_do_not_count_as_bytes() -> None:
    detokenizer = Detokenizer(vocabulary_of(bytes_beside_words()))
    first, second = "é".encode()
    assert detokenizer.feed([first, *[258] * 100, second]) == "é"


def test_a_panic_of_the_package_is_an_exception() -> None:
    tokenizer = bytes_beside_words()
    tokenizer.decoder = decoders.Strip(" ", 1, 1)
    tokenizer.add_tokens([" "])
    decoder = ForeignDecoder(shared_of(tokenizer, 260), True, True)
    with pytest.raises(RuntimeError, match="panicked"):
        decoder.step(259)
