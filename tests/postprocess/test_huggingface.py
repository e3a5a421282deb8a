"""Which decoders are a table, and that a table reads as its decoder does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models
from tokenizers.decoders import DecodeStream

from tests.postprocess.vocab import cut, streamed
from tokenpipe.errors import ConfigError
from tokenpipe.postprocess import Detokenizer, load_vocabulary, wish_for
from tokenpipe.postprocess.huggingface import vocabulary_of

PIECES = ["\u2581the", "\u2581", "##ing", "don", " '", "'t", " n't", ".", "a.b", "é", "</w>",
          "x</w>", "\u2581\u2581b", "<0xC3>", "<0xA9>", "<0xZZ>", " do not", "##"]  # fmt: skip


def tokenizer_with(decoder: Any) -> Tokenizer:
    made = Tokenizer(models.WordLevel({p: i for i, p in enumerate(PIECES)}, unk_token="."))
    if decoder is not None:
        made.decoder = decoder
    made.add_special_tokens(["<s>", "</s>"])
    made.add_tokens([AddedToken("<tool>", normalized=False), "\u2581added"])
    return made


TABLES = {
    "none": None,
    "wordpiece": decoders.WordPiece(),
    "wordpiece, no cleanup": decoders.WordPiece(cleanup=False),
    "metaspace": decoders.Metaspace(),
    "metaspace, never": decoders.Metaspace(prepend_scheme="never"),
    "replace": decoders.Replace("\u2581", " "),
    "byte-level": decoders.ByteLevel(),
    "byte-level, fused": decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()]),
    "fallback only": decoders.ByteFallback(),
    "gemma": decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    ),
    "llama": decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    ),
    "strip each": decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Strip(" ", 1, 0)]),
    "strip two": decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.Fuse(), decoders.Strip(content=" ", left=2)]
    ),
}
OTHERS = {
    "bpe": decoders.BPEDecoder(),
    "ctc": decoders.CTC(),
    "strip the end": decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
    "strip each end": decoders.Sequence([decoders.Strip(" ", 0, 1), decoders.Fuse()]),
    "replace across": decoders.Sequence([decoders.Fuse(), decoders.Replace("tt", "T")]),
}


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
    assert not vocabulary.why_not
    if "ByteFallback" in str(tokenizer.decoder):  # bytes that are no characters: another test
        fixed: list[int] = []
        for i in ids:
            fixed += [PIECES.index("<0xC3>"), PIECES.index("<0xA9>")] if i in (13, 14) else [i]
        ids = fixed
    deltas = streamed(vocabulary, cut(ids, cuts), wish_for(skip_special_tokens=skip))
    assert "".join(deltas) == tokenizer.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("kind", ["bpe", "replace across"])
@settings(max_examples=60, deadline=None)
@given(ids=st.lists(st.integers(0, len(PIECES) + 3), max_size=20), skip=st.booleans())
def test_what_is_no_table_is_decoded_by_the_tokenizer(
    kind: str, ids: list[int], skip: bool
) -> None:
    tokenizer = tokenizer_with(OTHERS[kind])
    vocabulary = vocabulary_of(tokenizer)
    assert "decoder" in vocabulary.why_not
    wish = wish_for(skip_special_tokens=skip)
    stream = DecodeStream(skip_special_tokens=skip)
    expected = [stream.step(tokenizer, i) or "" for i in ids]
    deltas = streamed(vocabulary, [[i] for i in ids], wish)
    assert deltas[:-1] == expected
    whole = tokenizer.decode(ids, skip_special_tokens=skip)
    assert "".join(deltas) == whole or not whole.startswith("".join(expected))


@pytest.mark.parametrize("kind", ["ctc", "strip the end", "strip each end"])
def test_a_decoder_that_is_no_table_says_why(kind: str) -> None:
    assert "decoder" in vocabulary_of(tokenizer_with(OTHERS[kind])).why_not


def test_stops_are_found_in_what_a_tokenizer_decodes() -> None:
    vocabulary = vocabulary_of(tokenizer_with(OTHERS["bpe"]))
    don, t = PIECES.index("don"), PIECES.index("'t")
    detokenizer = Detokenizer(vocabulary, wish_for(stop=["n't"]))
    assert [detokenizer.feed([don]), detokenizer.feed([t]), detokenizer.end()] == ["do", "", ""]
    assert detokenizer.stop_reason == "n't"


def test_spaces_between_added_tokens() -> None:
    vocabulary = vocabulary_of(tokenizer_with(decoders.WordPiece()))
    the, tool, special = 0, len(PIECES) + 2, len(PIECES)
    ids = [the, tool, special, tool, the, tool]
    for spaces, text in ((True, "\u2581the <tool> <s> <tool> \u2581the <tool>"),
                         (False, "\u2581the <tool><s><tool> \u2581the <tool>")):  # fmt: skip
        wish = wish_for(skip_special_tokens=False, spaces_between_special_tokens=spaces)
        assert "".join(streamed(vocabulary, [[i] for i in ids], wish)) == text


def test_a_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer_with(decoders.Metaspace()).save(str(path))
    vocabulary = load_vocabulary(path)
    assert vocabulary.size == len(PIECES) + 4
    assert Detokenizer(vocabulary).feed([0, 0]) == "the the"


@pytest.mark.parametrize("text", ["", "{}", "no json"])
def test_a_file_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        load_vocabulary(path)
    with pytest.raises(ConfigError, match="missing"):
        load_vocabulary(tmp_path / "missing")
