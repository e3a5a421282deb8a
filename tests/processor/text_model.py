"""What text must come out, in plain Python: decode as Python does, search after every token."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import NamedTuple

from tests.postprocess.vocab import real

WORDS = {i: word for word, i in real("gpt2_style").words.items()}
SPECIAL = 0  # <|endoftext|>
SIZE = real("gpt2_style").vocabulary.size


class Outcome(NamedTuple):
    """What a request must have given."""

    tokens: list[int]
    text: str
    finish: int  # 0: goes on
    stop_reason: int
    stop_string: int


def expected(
    tokens: Sequence[int],
    max_tokens: int,
    min_tokens: int = 0,
    ends: Sequence[int] = (),
    stop: Sequence[str] = (),
    include: bool = False,
    prompt: Sequence[int] = (),
) -> Outcome:
    """Return the outcome; where the request goes on, the text is all that may be sent by now."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in prompt:
        decoder.decode(WORDS.get(token, b""))
    text = ""
    for i, token in enumerate(tokens):
        before, state = text, decoder.getstate()
        text += decoder.decode(WORDS.get(token, b""))
        if i >= min_tokens and (found := _complete(text, len(before), stop)) is not None:
            end, which = found
            text = text[: end if include else end - len(stop[which])]
            return Outcome(list(tokens[: i + 1]), text, 1, -1, which)
        if i + 1 >= min_tokens and token in ends:
            if not include:
                text = before
                decoder.setstate(state)
            return Outcome(list(tokens[: i + 1]), text + decoder.decode(b"", True), 1, token, -1)
        if i + 1 == max_tokens:
            return Outcome(list(tokens[: i + 1]), text + decoder.decode(b"", True), 2, -1, -1)
    held = max(
        (n for s in stop for n in range(1, len(s)) if text.endswith(s[:n])),
        default=0,
    )
    return Outcome(list(tokens), text[: len(text) - held], 0, -1, -1)


def _complete(text: str, before: int, stop: Sequence[str]) -> tuple[int, int] | None:
    """Return where the first stop ends that has its last character after `before`, and which."""
    for end in range(before + 1, len(text) + 1):
        ending = [s for s in stop if text[:end].endswith(s)]
        if ending:
            return end, list(stop).index(max(ending, key=len))
    return None
