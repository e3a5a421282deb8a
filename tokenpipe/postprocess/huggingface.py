"""Decode and encode with the `tokenizers` package. Imported only for a configured tokenizer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from tokenpipe._core import Text, Vocab
from tokenpipe.errors import ConfigError

from .decoder_table import NoTableError, decoder_table, has_byte_fallback
from .detokenizer import Detokenizer, TextOptions, text_options
from .panics import as_exception
from .vocabulary import Vocabulary

SAMPLE_LENGTHS = (1, 2, 3, 5, 8, 40, 200)  # tokens
MOST_WAITING = 8  # ids without text; a character has four bytes at most


def read_vocabulary(path: str | Path) -> Vocabulary:
    """Return the vocabulary of a tokenizer.json. Raises ConfigError."""
    return vocabulary_of(_load(path))


def _load(path: str | Path) -> Tokenizer:
    try:
        tokenizer: Tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises plain Exception for a malformed file
        raise ConfigError(f"tokenizer: {path} cannot be read: {error}") from None
    # A training may have left these in the file. They would cut a prompt, or fill it.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class HuggingFaceEncoder:
    """An Encoder that uses a tokenizer.json."""

    def __init__(self, path: str | Path) -> None:
        self._tokenizer = _load(path)
        self._vocabulary = vocabulary_of(self._tokenizer)

    def encode(self, texts: Sequence[str], special_tokens: bool = True) -> list[list[int]]:
        """Return the ids of each text; `special_tokens`: with those that the tokenizer adds."""
        batch = self._tokenizer.encode_batch_fast  # `encode` of the package holds the GIL
        try:
            return [made.ids for made in batch(list(texts), add_special_tokens=special_tokens)]
        except BaseException as error:
            raise as_exception(error) from None

    def token(self, token_id: int) -> tuple[str, bytes]:
        """Return name and bytes of one token after another one; see `Encoder.token`."""
        table = self._vocabulary.table
        if token_id < len(table):
            raw = table.word(token_id)
        else:  # the tokenizer itself decodes, or there is no such id
            text = _decode(self._tokenizer, [token_id], False)
            raw = b"" if "\ufffd" in text else text.encode()
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            name = "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
        return name or self._tokenizer.id_to_token(token_id) or f"token_id:{token_id}", raw

    def detokenizer(self, options: TextOptions) -> Detokenizer:
        """Return a new one, which turns the tokens of one output into text."""
        return Detokenizer(self._vocabulary, options)


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """Return the vocabulary of a loaded tokenizer."""
    size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    try:
        table = decoder_table(tokenizer, size)
        if _agrees(tokenizer, table, size):
            return Vocabulary(size, table)
        reason = "a table does not give the text of its decoder"
    except NoTableError as error:
        reason = str(error)
    foreign = partial(ForeignDecoder, shared_of(tokenizer, size))
    return Vocabulary(size, Vocab((b"", b""), b"", False, 0, foreign=foreign), reason)


class Shared(NamedTuple):
    """What all decoders of a tokenizer share."""

    tokenizer: Tokenizer
    silent: frozenset[int]  # ids without a token: they have no text, and change nothing
    silent_and_special: frozenset[int]


def shared_of(tokenizer: Tokenizer, size: int) -> Shared:
    """Return what the decoders of a tokenizer with `size` ids share."""
    known = set(tokenizer.get_vocab(with_added_tokens=True).values())
    added = tokenizer.get_added_tokens_decoder()
    silent = frozenset(range(size)) - known
    return Shared(tokenizer, silent, silent | {i for i, token in added.items() if token.special})


class ForeignDecoder:
    """Decodes one sequence with the tokenizer itself, for a decoder that is no table.

    C calls it as `foreign(skip special tokens, spaces between special tokens)`. The tokenizer
    decides about spaces itself. The package decodes all ids again that have given no text. So
    after MOST_WAITING of them, their text is returned as it is, with U+FFFD for what is no
    character, and a new sequence begins behind them.
    """

    def __init__(self, shared: Shared, skip_special_tokens: bool, _spaces: bool) -> None:
        self._shared = shared
        self._skip = skip_special_tokens
        self._silent = shared.silent_and_special if skip_special_tokens else shared.silent
        self._begin()

    def _begin(self) -> None:
        self._stream = DecodeStream(skip_special_tokens=self._skip)
        self._ids: list[int] = []
        self._given = 0  # characters that `step` returned
        self._waiting = 0  # the last ids that gave no text

    def step(self, token: int) -> str:
        """Return the text that is complete with this token."""
        if token in self._silent:
            return ""
        self._ids.append(token)
        try:
            text = self._stream.step(self._shared.tokenizer, token) or ""
        except BaseException as error:
            raise as_exception(error) from None
        self._given += len(text)
        self._waiting = 0 if text else self._waiting + 1
        if self._waiting == MOST_WAITING:
            text = self.end()
            self._begin()
        return text

    def end(self) -> str:
        """Return the text that no step completed."""
        return _decode(self._shared.tokenizer, self._ids, self._skip)[self._given :]

    def copy(self) -> ForeignDecoder:
        """Return a second decoder in the same state."""
        other = copy.copy(self)
        other._stream = copy.copy(self._stream)
        other._ids = list(self._ids)
        return other


def _decode(tokenizer: Tokenizer, ids: list[int], skip_special_tokens: bool) -> str:
    try:
        text: str = tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
    except BaseException as error:
        raise as_exception(error) from None
    return text


def _agrees(tokenizer: Tokenizer, table: Vocab, size: int) -> bool:
    """Return whether table and decoder give the same text for some pseudo-random sequences.

    Tokens that spell a byte are left out: alone they are mostly invalid UTF-8, and there the two
    differ on purpose (docs/design.md, Text).
    """
    skip_bytes = has_byte_fallback(tokenizer)
    number = 1
    for length in SAMPLE_LENGTHS:
        for skip in (False, True):
            ids: list[int] = []
            while len(ids) < length and size > 0:
                number = number * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
                token = (number >> 33) % size
                text = tokenizer.id_to_token(token) or ""
                if not (skip_bytes and text.startswith("<0x")):
                    ids.append(token)
                elif size <= 512:
                    length -= 1  # a small vocabulary may have hardly any other token
            found = Text(table, text_options(skip_special_tokens=skip))
            if found.feed(ids)[0] + found.end() != tokenizer.decode(ids, skip_special_tokens=skip):
                return False
    return True
