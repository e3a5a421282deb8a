"""Names of tokens: joined they are the text, and no two of one token's alternatives are equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.postprocess.vocab import real
from tokenpipe.api.text_codec import TokenizerCodec
from tokenpipe.api.token_names import NamedToken, TokenNames
from tokenpipe.postprocess import load_encoder
from tokenpipe.types import SamplingParams, TokenLogprobs

TEXT = "one two, drei €uro 漢字 🙂 end"


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TokenizerCodec:
    path: Path = tmp_path_factory.mktemp("names") / "tokenizer.json"
    real("gpt2_style").tokenizer.save(str(path))
    return TokenizerCodec(load_encoder(path), None)


def names_of(codec: TokenizerCodec, as_ids: bool = False, **params: Any) -> TokenNames:
    detokenizer = codec.detokenizer([1, 2], SamplingParams(**params))
    return TokenNames(codec.label, detokenizer, as_ids=as_ids)


@pytest.mark.case("F34")
@pytest.mark.parametrize("at_once", [1, 2, 1000])
def test_names_joined_are_the_text_and_offsets_fit(codec: TokenizerCodec, at_once: int) -> None:
    (ids,) = codec.encode_prompts([TEXT])
    names, named = names_of(codec), list[NamedToken]()
    names.told(TEXT)
    for i in range(0, len(ids), at_once):
        named += names.take(ids[i : i + at_once], i + at_once >= len(ids))
    assert "".join(token.name for token in named) == TEXT
    assert b"".join(token.raw for token in named) == TEXT.encode()
    for token in named:
        assert TEXT[token.offset :].startswith(token.name)
    assert any(token.raw and not token.name for token in named)  # a part of a character


@pytest.mark.case("F34")
def test_a_half_character_and_a_cut_text_at_the_end(codec: TokenizerCodec) -> None:
    (ids,) = codec.encode_prompts(["ab🙂"])
    names = names_of(codec)
    names.told("ab\ufffd")
    named = list(names.take(ids[:-1], True))
    assert "".join(token.name for token in named) == "ab\ufffd"
    names = names_of(codec)
    names.told("one t")  # a stop string cut the rest
    (ids,) = codec.encode_prompts(["one two three"])
    named = list(names.take(ids, True))
    assert "".join(token.name for token in named) == "one t"
    assert all(token.offset <= 5 for token in named)


@pytest.mark.case("F34")
def test_names_of_alternatives_are_distinct(codec: TokenizerCodec) -> None:
    (ids,) = codec.encode_prompts(["漢🙂 a"])
    top = (*dict.fromkeys(ids), 300, 1_000_000)
    for own_id in ids:
        for as_ids in (False, True):
            names = names_of(codec, as_ids)
            (own,) = names.take([own_id], False)
            entry = TokenLogprobs((own_id, *top), (-1.0,) * (1 + len(top)), 1)
            found = [name for name, _, _ in names.of_top(entry, own)]
            assert len(set(found)) == len(top) and all(found), found
            assert names.own_name(own_id, own) in found


@pytest.mark.case("F34")
def test_tokens_of_one_text_are_told_apart() -> None:
    def label(token: int) -> tuple[str, bytes]:
        return "same", b"same"

    names = TokenNames(label)
    (own,) = names.take([7], False)
    inside = TokenLogprobs((7, 5, 7, 6), (-1.0, -0.1, -1.0, -2.0), 2)
    assert [one[0] for one in names.of_top(inside, own)] == ["token_id:5", "same", "token_id:6"]
    outside = TokenLogprobs((7, 5), (-1.0, -0.1), 2)
    assert [one[0] for one in names.of_top(outside, own)] == ["token_id:5"]


def test_tokens_by_their_ids(codec: TokenizerCodec) -> None:
    names = names_of(codec, True)
    names.told("!!")
    assert [token.name for token in names.take([0, 0], True)] == ["token_id:0", "token_id:0"]


def test_a_request_without_text_has_labels(codec: TokenizerCodec) -> None:
    names = names_of(codec, detokenize=False)
    (ids,) = codec.encode_prompts(["one two"])
    assert "".join(token.name for token in names.take(ids, True)) == "one two"
