"""Name what a server needs of a tokenizer: text to ids, and the names of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .detokenizer import Detokenizer, TextOptions


class Encoder(Protocol):
    """Turns text into token ids. A server needs this for prompts that are text."""

    def encode(self, texts: Sequence[str], special_tokens: bool = True) -> list[list[int]]:
        """Return the ids of each text; `special_tokens`: with those that the tokenizer adds.

        Other threads run meanwhile.
        """

    def token(self, token_id: int) -> tuple[str, bytes]:
        """Return name and bytes of one token after another one.

        The name is its text, if that is whole and not empty. Otherwise it is "bytes:" and the
        bytes, or how the tokenizer writes the token.
        """

    def detokenizer(self, options: TextOptions) -> Detokenizer:
        """Return a new one, which turns the tokens of one output into text."""
