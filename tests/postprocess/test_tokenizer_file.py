"""A tokenizer is looked for before a process is started that needs it, and read by its extra."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders

from tests.postprocess.small_tokenizers import PIECES, tokenizer_with
from tests.postprocess.vocab import real
from tokenpipe.errors import ConfigError
from tokenpipe.postprocess import Detokenizer, check_tokenizer, load_encoder, load_vocabulary

MODULE = "tokenpipe.postprocess.huggingface"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    real("gpt2_style").tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@pytest.fixture
def without_tokenizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be as where the extra is not installed."""
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "tokenpipe.postprocess.tokenizer_file.find_spec",
        lambda name: None if name == "tokenizers" else found(name),
    )


def test_no_tokenizer_is_fine_and_a_file_is_not_read(tmp_path: Path) -> None:
    check_tokenizer(None)
    (tmp_path / "noise.json").write_text("no json")
    check_tokenizer(tmp_path / "noise.json")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.json", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=f"^tokenizer: {path} cannot be read: {why}"):
            check_tokenizer(path)


def test_an_encoder_encodes_as_its_tokenizer(path: Path) -> None:
    tokenizer, encoder = real("gpt2_style").tokenizer, load_encoder(path)
    for special in (True, False):
        ids = tokenizer.encode("The return of é", add_special_tokens=special).ids
        assert encoder.encode(["The return of é"], special) == [ids]
    for token in ids:
        text = tokenizer.decode([token])
        name, raw = encoder.token(token)
        assert raw.decode(errors="replace") == text
        assert name == text if "\ufffd" not in text else name.startswith("bytes:\\x")


@pytest.mark.case("F35")
@pytest.mark.parametrize("left", ["truncation", "padding"])
def test_what_a_training_left_in_the_file_is_off(tmp_path: Path, path: Path, left: str) -> None:
    text = "The return of é is long enough to be cut"
    expected = load_encoder(path).encode([text, "a"])
    tokenizer = Tokenizer.from_file(str(path))
    if left == "truncation":
        tokenizer.enable_truncation(max_length=2)
    else:
        tokenizer.enable_padding(length=64)
    tokenizer.save(str(tmp_path / "trained.json"))
    assert Tokenizer.from_file(str(tmp_path / "trained.json")).encode(text).ids != expected[0]
    assert load_encoder(tmp_path / "trained.json").encode([text, "a"]) == expected


def test_a_vocabulary_has_a_word_for_every_id(path: Path) -> None:
    vocabulary = load_vocabulary(path)
    assert vocabulary.size == len(vocabulary.table) == real("gpt2_style").vocabulary.size
    assert vocabulary.no_table_reason == ""


@pytest.mark.usefixtures("without_tokenizers")
def test_the_extra_is_named_where_it_is_not_installed(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    for look in (check_tokenizer, load_vocabulary, load_encoder):
        with pytest.raises(ConfigError, match=r"needs the extra tokenpipe\[text\]"):
            look(path)


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
