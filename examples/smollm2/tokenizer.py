"""Build the model's tokenizer and chat template from its GGUF file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gguf import GGUFReader
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from .weights import find_gguf

CONTROL = 3  # GGUF's type of a token that is not text


class Chat:
    """The tokenizer, and the template that renders a conversation as a prompt."""

    def __init__(self, gguf: Path | None = None) -> None:
        fields = GGUFReader(str(gguf or find_gguf())).fields
        tokens: list[str] = fields["tokenizer.ggml.tokens"].contents()
        kinds: list[int] = fields["tokenizer.ggml.token_type"].contents()
        merges: list[str] = fields["tokenizer.ggml.merges"].contents()
        self.eos = int(fields["tokenizer.ggml.eos_token_id"].contents())
        self.tokenizer = Tokenizer(
            models.BPE(
                vocab={token: i for i, token in enumerate(tokens)},
                merges=[(a, b) for a, b in (merge.split(" ") for merge in merges)],
            )
        )
        self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        self.tokenizer.decoder = decoders.ByteLevel()
        special = [t for t, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
        self.tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
        jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._source: str = fields["tokenizer.chat_template"].contents()
        self._template = jinja.from_string(self._source)

    def save(self, folder: Path) -> Path:
        """Write the tokenizer and the chat template into a folder; return the tokenizer's path.

        A topology can name this path. The API server finds the template beside it by its name.
        """
        path, template = folder / "tokenizer.json", folder / "chat_template.jinja"
        if not (path.exists() and template.exists()):
            part = folder / f"tokenizer.{os.getpid()}.part"
            part.write_text(self._source)
            part.replace(template)
            self.tokenizer.save(str(part))
            part.replace(path)
        return path

    def prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the token ids that ask for the assistant's next message."""
        text = self._template.render(messages=messages, add_generation_prompt=True)
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text
