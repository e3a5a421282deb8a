"""Make one prompt of a conversation, with the template that comes with the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tokenpipe.errors import ConfigError

from .problems import Problem
from .request_models import ChatMessage

TEMPLATE_FILE = "chat_template.jinja"
CONFIG_FILE = "tokenizer_config.json"


class ChatTemplate:
    """A Jinja template as Hugging Face's models have it. It runs in a sandbox."""

    def __init__(self, source: str, tokens: Mapping[str, str], name: str) -> None:
        """`tokens` are the special tokens by name, `name` the file. Raises ConfigError."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _raise
        environment.filters["tojson"] = _tojson
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ConfigError(f"chat template {name}: {error}") from None
        self._tokens = dict(tokens)

    @classmethod
    def read(cls, path: Path) -> ChatTemplate:
        """Read the file of a template. Raises ConfigError."""
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"api.chat_template: {path} cannot be read: {error}") from None
        return cls(source, _config(path.with_name(CONFIG_FILE))[1], str(path))

    @classmethod
    def beside(cls, tokenizer: Path) -> ChatTemplate | None:
        """Return the template in the folder of a tokenizer.json, None where there is none."""
        alone = tokenizer.with_name(TEMPLATE_FILE)
        if alone.is_file():
            return cls.read(alone)
        path = tokenizer.with_name(CONFIG_FILE)
        source, tokens = _config(path)
        return cls(source, tokens, str(path)) if source else None

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """Return the text of the prompt. Raises Problem, a 400, where the template fails."""
        dumped = [
            {**message.model_dump(exclude_none=True), "content": message.text}
            for message in messages
        ]
        try:
            return self._template.render(
                messages=dumped, add_generation_prompt=True, **self._tokens
            )
        except TemplateError as error:
            raise Problem(400, f"messages: {error}", param="messages") from None


def _config(path: Path) -> tuple[str, dict[str, str]]:
    """Return (template, special tokens by name) from a tokenizer_config.json."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "", {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    tokens = {}
    for name, value in raw.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    template = raw.get("chat_template") or ""
    if isinstance(template, list):  # several templates, by name
        by_name = {entry.get("name"): entry.get("template") for entry in template}
        template = by_name.get("default") or ""
    return str(template), tokens


def _raise(message: str) -> Any:
    raise TemplateError(message)


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
