"""What each token id reads as, and where to get it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from tokenpipe._core import Vocab
from tokenpipe.errors import ConfigError

NEEDS_EXTRA = "tokenizer: reading one needs the extra tokenpipe[text]"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer's table of words.

    Where its decoder is more than a table, `why_not` says in what, and the tokenizer itself
    decodes, a token at a time.
    """

    size: int  # ids are below it
    table: Vocab
    why_not: str = ""


class Encoder(Protocol):
    """The other direction: what a server needs for prompts of text."""

    def encode(self, text: str, special_tokens: bool = True) -> list[int]:
        """Return the ids of a text, with the special tokens that its tokenizer adds, or not."""

    def token(self, token_id: int) -> str:
        """Return what one token reads as by itself."""


def check_tokenizer(path: Path | None) -> None:
    """Raise ConfigError where a tokenizer.json or what reads it is not there. Reads nothing.

    For whoever starts a process that will read it.
    """
    if path is None:
        return
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(f"tokenizer: {path} cannot be read: {error.strerror}") from None
    if find_spec("tokenizers") is None:
        raise ConfigError(f"{NEEDS_EXTRA} (tokenizers is not installed)")


def load_vocabulary(path: str | Path) -> Vocabulary:
    """Read a Hugging Face `tokenizer.json`; ConfigError says why it cannot be."""
    vocabulary: Vocabulary = _module().read(path)
    return vocabulary


def load_encoder(path: str | Path) -> Encoder:
    """Read a Hugging Face `tokenizer.json` to encode with; ConfigError says why it cannot be."""
    encoder: Encoder = _module().HuggingFaceEncoder(path)
    return encoder


def _module() -> Any:
    try:
        return importlib.import_module("tokenpipe.postprocess.huggingface")
    except ImportError as error:
        raise ConfigError(f"{NEEDS_EXTRA} ({error})") from None
