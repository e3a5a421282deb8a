"""Hold the text of each token id."""

from __future__ import annotations

from dataclasses import dataclass

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
