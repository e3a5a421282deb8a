"""Check and load a Hugging Face `tokenizer.json`."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenpipe.errors import ConfigError

from .encoder import Encoder
from .vocabulary import Vocabulary

NEEDS_EXTRA = "tokenizer: a tokenizer needs the extra tokenpipe[text]"


def check_tokenizer(path: Path | None) -> None:
    """Check that the file and the `tokenizers` package are there. Reads nothing.

    Raises ConfigError. Call this before starting a process that loads the file.
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
    """Read a `tokenizer.json` to decode with. Raises ConfigError with the reason."""
    vocabulary: Vocabulary = _huggingface().read_vocabulary(path)
    return vocabulary


def load_encoder(path: str | Path) -> Encoder:
    """Read a `tokenizer.json` to encode with. Raises ConfigError with the reason."""
    encoder: Encoder = _huggingface().HuggingFaceEncoder(path)
    return encoder


def _huggingface() -> Any:
    # By name, because it imports the tokenizers package, which is optional.
    try:
        return importlib.import_module("tokenpipe.postprocess.huggingface")
    except ImportError as error:
        raise ConfigError(f"{NEEDS_EXTRA} ({error})") from None
