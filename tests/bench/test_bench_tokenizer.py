"""The bench's tokenizer.json is read as any other, and its words are all different."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokenpipe.bench.bench_tokenizer import WIDTH, words, write_tokenizer
from tokenpipe.postprocess import Detokenizer, load_vocabulary


def test_a_processor_makes_the_words_of_the_tokens(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    vocabulary = load_vocabulary(tmp_path / "tokenizer.json")
    assert vocabulary.size == 1 << 17 and not vocabulary.no_table_reason
    tokens = [0, 1, 4095, 131071]
    text = words(17)[np.array(tokens)].tobytes()
    assert Detokenizer(vocabulary).feed(tokens).encode() == text
    assert len(text) == len(tokens) * WIDTH


def test_no_word_is_there_twice() -> None:
    assert len(set(words(17).tolist())) == 1 << 17
