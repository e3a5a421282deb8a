"""The checker finds each fault of a text, and none where the text is right."""

from __future__ import annotations

import numpy as np
import pytest

from tokenpipe import _core
from tokenpipe.bench.bench_tokenizer import WIDTH, words
from tokenpipe.bench.oracle import sequence
from tokenpipe.bench.text_checker import TextChecker
from tokenpipe.wire import OutputFrame

KEY = 7 << 32 | 3


def frame(rows: list[tuple[int, list[int], int, bytes]]) -> OutputFrame:
    """Return the frame of (offset, tokens, text offset, text) rows of one request."""
    tokens = [t for _, row, _, _ in rows for t in row]
    columns = {
        1: np.full(len(rows), KEY, np.uint64),
        2: np.array([len(row) for _, row, _, _ in rows], np.uint32),
        3: np.array(tokens, np.int32),
        4: np.array([offset for offset, *_ in rows], np.uint32),
        13: np.array([len(text) for *_, text in rows], np.uint32),
        14: b"".join(text for *_, text in rows),
        15: np.array([offset for _, _, offset, _ in rows], np.uint32),
    }
    header = (1, 2, 3, 1, 0, 0, len(rows), len(tokens), 0)
    return OutputFrame.unpack(_core.pack_output(header, columns))


def text_of(tokens: list[int]) -> bytes:
    text: bytes = words(17)[np.array(tokens)].tobytes()
    return text


@pytest.mark.parametrize("cut", [0, 3, 9, 20])
def test_a_right_text_is_right_however_it_comes(cut: int) -> None:
    tokens = sequence(KEY, 0, 5)
    text = text_of(tokens)
    check = TextChecker()
    check.frame(frame([(0, [], 0, text[:cut])]))
    check.frame(frame([(0, tokens, cut, text[cut:])]))
    check.finish(KEY, 5)
    assert check.misspelled == 0


@pytest.mark.parametrize("fault", ["letter", "twice", "missing", "early end"])
def test_a_wrong_text_is_found(fault: str) -> None:
    tokens = sequence(KEY, 0, 5)
    text = text_of(tokens)
    check = TextChecker()
    match fault:
        case "letter":
            check.frame(frame([(0, tokens, 0, b"#" + text[1:])]))
        case "twice":
            check.frame(frame([(0, tokens, 0, text)]))
            check.frame(frame([(5, [], 0, text)]))
        case "missing":
            check.frame(frame([(0, tokens, 0, text[:-WIDTH])]))
        case _:
            check.frame(frame([(0, tokens, 0, text)]))
            tokens = tokens[:4]
    check.finish(KEY, len(tokens))
    assert check.misspelled > 0
