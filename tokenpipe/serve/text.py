"""Turn a caller's text into token ids, and ids into the text of an answer, where there is one.

Without a tokenizer an answer's text is plain: each token id in decimal, behind a space. A prompt is
then given as token ids; the synthetic engine, which has no language, also takes text, as its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tokenpipe.types import RequestOutput

from .problems import Problem
from .schema import ChatMessage


class Text(Protocol):
    """What an API server knows about text."""

    can_stop: bool  # stop strings can be found

    def encode(self, text: str, param: str) -> list[int]:
        """Return the ids of a prompt. Raises Problem."""

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Return the ids of a conversation. Raises Problem."""

    def of(self, output: RequestOutput) -> str:
        """Return the text of a delta."""

    def of_token(self, token_id: int) -> str:
        """Return what one token looks like."""


class PlainText:
    """Ids in decimal. `takes_text`: prompts may be text, whose UTF-8 bytes are its ids."""

    can_stop = False

    def __init__(self, takes_text: bool) -> None:
        self._takes_text = takes_text

    def encode(self, text: str, param: str) -> list[int]:
        """Return the bytes of a text, where that is taken."""
        if not self._takes_text:
            said = f"{param}: the server has no tokenizer; give a list of token ids"
            raise Problem(400, said, param=param, code="no_tokenizer")
        return list(text.encode())

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Return the bytes of role and content, line by line."""
        text = "".join(f"{message.role}: {message.text}\n" for message in messages)
        return self.encode(f"{text}assistant:", "messages")

    def of(self, output: RequestOutput) -> str:
        """Return each id behind a space."""
        ids = output.token_ids
        return f" {ids[0]}" if len(ids) == 1 else "".join([f" {token}" for token in ids])

    def of_token(self, token_id: int) -> str:
        """Return the id behind a space."""
        return f" {token_id}"
