"""A decoder that is no table, through the processor's table: the same laws, a token at a time."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models

from tests.processor.rig import Rig, Row
from tokenpipe._core import Text, Vocab
from tokenpipe.postprocess import text_options
from tokenpipe.postprocess.huggingface import vocabulary_of
from tokenpipe.types import RowStatus
from tokenpipe.wire import HandleRescheduled, Preempt

WORDS = ["hel", "lo</w>", "wor", "ld</w>", "END</w>", "!"]
END = (WORDS.index("END</w>"),)


def clip_style() -> Tokenizer:
    """Return a tokenizer whose decoder treats the last token in its own way."""
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="!"))
    tokenizer.decoder = decoders.BPEDecoder()
    return tokenizer


def foreign_rig() -> Rig:
    vocabulary = vocabulary_of(clip_style())
    assert vocabulary.no_table_reason
    return Rig(ranks=2, vocab=vocabulary.table, vocab_size=len(WORDS), eos_token_ids=END)


def text_fields(*stop: str) -> dict[str, Any]:
    return {"text": True, **text_options(stop=stop)._asdict()}


def test_a_stop_token_is_taken_back_out_of_the_text() -> None:
    rig = foreign_rig()
    handle = rig.bind(9, **text_fields())
    for token in (0, 1, 2, 3, *END):
        rig.feed(Row(handle, [token]))
    got = rig.stream(9)
    assert (got.text.decode(), got.finish, got.stop_reason) == ("hello world", 1, END[0])
    assert got.text.decode() == clip_style().decode([0, 1, 2, 3])


def test_a_stop_string_across_a_preemption() -> None:
    rig = foreign_rig()
    handle = rig.bind(9, **text_fields("lo wo"))
    rig.feed(Row(handle, [0, 1]))
    rig.command(Preempt(handle))
    rig.feed(Row(handle, (), RowStatus.DRAINED))
    (outcome,) = rig.ended()
    assert isinstance(outcome, HandleRescheduled)
    assert (outcome.text_offset, outcome.text_tail) == (3, b"lo")
    handle = rig.bind(9, dp=1, output_token_ids=(0, 1), **text_fields("lo wo"))
    rig.feed(Row(handle, [2, 3]), dp=1)
    got = rig.stream(9)
    assert (got.text, got.tokens, got.finish, got.stop_string) == (b"hel", [0, 1, 2], 1, 0)


class Broken:
    """A decoder that fails on one token."""

    def step(self, token: int) -> str:
        if token == 3:
            raise RuntimeError("no such word")
        return str(token)

    def end(self) -> str:
        return ""

    def copy(self) -> Broken:
        return self


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_decoder_that_fails_ends_its_own_request() -> None:
    vocab = Vocab((b"", b""), b"", False, 0, foreign=lambda skip, spaces: Broken())
    rig = Rig(vocab=vocab, vocab_size=9, eos_token_ids=())
    bad, good = rig.bind(1, **text_fields()), rig.bind(2, slot=1, **text_fields())
    rig.feed(Row(bad, [1, 2, 3, 4]), Row(good, [1, 2]))
    rig.feed(Row(good, [4]))
    got = rig.stream(1)
    assert (got.tokens, got.text, got.finish) == ([1, 2], b"12", 4)
    assert "tokenizer failed on token 3" in got.error
    assert rig.stream(2).text == b"124"


def joined() -> Tokenizer:
    """Return a tokenizer whose package raises on "tt": the text before it changes."""
    tokenizer = Tokenizer(models.WordLevel({"t": 0, "e": 1, "!": 2}, unk_token="!"))
    tokenizer.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace("tt", "T")])
    return tokenizer


@pytest.mark.case("F09")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_decoder_that_fails_on_the_prompt_begins_without_it() -> None:
    vocabulary = vocabulary_of(joined())
    assert vocabulary.no_table_reason
    rig = Rig(vocab=vocabulary.table, vocab_size=3, eos_token_ids=())
    fields: dict[str, Any] = {"text": True, **text_options([0, 0, 0, 1])._asdict()}
    handle = rig.bind(1, **fields)
    rig.feed(Row(handle, [1, 0, 1]))
    assert (rig.stream(1).text, rig.stream(1).finish) == (b"ete", 0)


def make_broken(skip: bool, spaces: bool) -> Broken:
    return Broken()


def make_none(skip: bool, spaces: bool) -> Broken:
    raise RuntimeError("no decoder can be made")


@pytest.mark.case("F09")
@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("outputs", [(), (1, 3)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_bind_whose_decoder_fails_ends_only_its_request(
    outputs: tuple[int, ...], parked: bool
) -> None:
    # Without outputs the decoder fails when it is made, else on the outputs.
    made = make_broken if outputs else make_none
    rig = Rig(vocab=Vocab((b"", b""), b"", False, 0, foreign=made), vocab_size=9, eos_token_ids=())
    bad, good = rig.new_handle(0), rig.bind(2, slot=1, text=False)
    rows = [Row(good, [5])] + [Row(bad, [6], k=1, extras=b"beside")] * parked
    rig.feed(*rows)
    rig.clients[0].begins[1] = len(outputs)
    rig.bind(1, handle=bad, output_token_ids=outputs, **text_fields())
    rig.feed(Row(good, [7]))
    got = rig.stream(1)
    assert (got.tokens, got.text, got.finish) == ([], b"", 4)
    assert got.error == "dp 0, slot 0: the tokenizer failed at the bind"
    assert rig.stream(2).tokens == [5, 7]
    assert rig.processor.unsent_bytes(0) == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_text_says_that_its_tokenizer_failed() -> None:
    vocab = Vocab((b"", b""), b"", False, 0, foreign=make_none)
    with pytest.raises(RuntimeError, match="tokenizer failed"):
        Text(vocab, text_options())
