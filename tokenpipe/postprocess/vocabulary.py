"""What each token id reads as, and where to get it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

from tokenpipe._core import Vocab
from tokenpipe.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer's table of words.

    Where its decoder is more than a table, `why_not` says in what, and the tokenizer itself
    decodes, a token at a time.
    """

    size: int  # ids are below it
    table: Vocab
    why_not: str = ""


def load_vocabulary(path: str | Path) -> Vocabulary:
    """Read a Hugging Face `tokenizer.json`; ConfigError says why it cannot be."""
    try:
        module = importlib.import_module("tokenpipe.postprocess.huggingface")
    except ImportError as error:
        raise ConfigError(
            f"tokenizer: reading one needs the extra tokenpipe[text] ({error})"
        ) from None
    vocabulary: Vocabulary = module.read(path)
    return vocabulary
