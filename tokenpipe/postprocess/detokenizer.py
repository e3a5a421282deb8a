"""Turn the tokens of one sequence into text, without a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tokenpipe._core import Text

from .vocabulary import Vocabulary

PROMPT_TAIL = 32
"""How many of a prompt's last ids decide how the text of the output begins: enough, because a
character has four bytes at most."""


class TextOptions(NamedTuple):
    """Says how to make a request's text, in the order in which C reads it."""

    skip_special_tokens: bool
    spaces_between_special_tokens: bool
    include_stop_str_in_output: bool
    stop: tuple[str, ...]
    prompt_tail: Sequence[int]  # the last ids of the prompt
    prompt_cut: bool  # the prompt has ids before the tail


def text_options(
    prompt_token_ids: Sequence[int] = (),
    stop: Sequence[str] = (),
    *,
    include_stop_str_in_output: bool = False,
    skip_special_tokens: bool = True,
    spaces_between_special_tokens: bool = True,
) -> TextOptions:
    """Return the options of a request with this prompt."""
    return TextOptions(
        skip_special_tokens,
        spaces_between_special_tokens,
        include_stop_str_in_output,
        tuple(stop),
        prompt_token_ids[-PROMPT_TAIL:],
        len(prompt_token_ids) > PROMPT_TAIL,
    )


class Detokenizer:
    """Turns tokens into text as they come.

    The texts that `feed` and `end` return, joined, are the text of decoding all tokens at once.
    A character is returned once and whole. The text ends before the first stop string, or after it
    with `include_stop_str_in_output`. Text that may begin a stop string is held back.
    """

    def __init__(self, vocabulary: Vocabulary, options: TextOptions | None = None) -> None:
        self._options = text_options() if options is None else options
        self._text = Text(vocabulary.table, self._options)
        self.stop_reason: str | None = None
        self.tokens = 0

    def feed(self, token_ids: Sequence[int], ignore_stops_in: int = 0) -> str:
        """Read tokens and return the new text. Tokens after a stop string are not read.

        A stop string that is complete in the first `ignore_stops_in` tokens does not count.
        """
        text, used, stop = self._text.feed(token_ids, ignore_stops_in)
        self.tokens += used
        if stop >= 0:
            self.stop_reason = self._options.stop[stop]
        return text

    def end(self) -> str:
        """Return the text that was held back. No token may follow."""
        return self._text.end()
