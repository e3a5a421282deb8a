"""The text of one sequence, for those who have its tokens and no pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tokenpipe._core import Text

from .vocabulary import Vocabulary

PROMPT_TAIL = 32
"""So many ids of a prompt decide how what follows reads: a character has four bytes at most."""


class TextWish(NamedTuple):
    """How a request's text is to be made, as the C half takes it."""

    skip_special_tokens: bool
    spaces_between_special_tokens: bool
    include_stop_str_in_output: bool
    stop: tuple[str, ...]
    prompt_tail: Sequence[int]
    prompt_cut: bool  # there were ids before the tail


def wish_for(
    prompt_token_ids: Sequence[int] = (),
    stop: Sequence[str] = (),
    *,
    include_stop_str_in_output: bool = False,
    skip_special_tokens: bool = True,
    spaces_between_special_tokens: bool = True,
) -> TextWish:
    """Return the wish of a request with that prompt."""
    return TextWish(
        skip_special_tokens,
        spaces_between_special_tokens,
        include_stop_str_in_output,
        tuple(stop),
        prompt_token_ids[-PROMPT_TAIL:],
        len(prompt_token_ids) > PROMPT_TAIL,
    )


class Detokenizer:
    """Turn tokens into text as they come.

    What `feed` and `end` return, put together, is what decoding all tokens at once gives: a
    character comes once, whole, and is never taken back. With stop strings the text ends before the
    first one (or behind it, with `include_stop_str_in_output`), and what may turn out to begin one
    is held back.
    """

    def __init__(self, vocabulary: Vocabulary, wish: TextWish | None = None) -> None:
        self._wish = wish_for() if wish is None else wish
        self._text = Text(vocabulary.table, self._wish)
        self.stop_reason: str | None = None
        self.tokens = 0

    def feed(self, token_ids: Sequence[int], ignore_stops_in: int = 0) -> str:
        """Read tokens and return what text is new; nothing is read after a stop string.

        A stop string that is complete within the first `ignore_stops_in` of them does not count.
        """
        text, used, stop = self._text.feed(token_ids, ignore_stops_in)
        self.tokens += used
        if stop >= 0:
            self.stop_reason = self._wish.stop[stop]
        return text

    def end(self) -> str:
        """Return what was held back; no token may follow."""
        return self._text.end()
