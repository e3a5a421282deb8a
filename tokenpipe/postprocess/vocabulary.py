"""Name the two directions of a tokenizer: ids to text and text to ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tokenpipe._core import Vocab


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The text of each token id.

    Most decoders can be written as a table of words. For another decoder `no_table_reason` says
    why not; then the tokenizer itself decodes, one token at a time.
    """

    size: int  # all ids are below it
    table: Vocab
    no_table_reason: str = ""


class Encoder(Protocol):
    """Turns text into token ids. A server needs this for prompts that are text."""

    def encode(self, texts: Sequence[str], special_tokens: bool = True) -> list[list[int]]:
        """Return the ids of each text; `special_tokens`: with those that the tokenizer adds.

        Other threads run meanwhile.
        """

    def token(self, token_id: int) -> str:
        """Return the text of one token alone."""
