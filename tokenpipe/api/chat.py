"""Make one prompt of a conversation, with the template that comes with the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from jinja2 import TemplateError

from tokenpipe.errors import ConfigError, first_line

from .message_history import as_mappings
from .problems import Problem
from .request_models import ChatMessage, ChatOptions
from .template_environment import Now, template_environment

TEMPLATE_FILE = "chat_template.jinja"
CONFIG_FILE = "tokenizer_config.json"
DEFAULTS = ChatOptions()


class ChatTemplate:
    """A Jinja template as Hugging Face's models have it. It runs in a sandbox."""

    def __init__(
        self, source: str, tokens: Mapping[str, str], name: str, now: Now = datetime.now
    ) -> None:
        """`tokens` are the special tokens by name, `name` the file. Raises ConfigError."""
        try:
            self._template = template_environment(now).from_string(source)
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
        """Return the template in the folder of a tokenizer.json, None if there is none."""
        alone = tokenizer.with_name(TEMPLATE_FILE)
        if alone.is_file():
            return cls.read(alone)
        path = tokenizer.with_name(CONFIG_FILE)
        source, tokens = _config(path)
        return cls(source, tokens, str(path)) if source else None

    def render(self, messages: Sequence[ChatMessage], options: ChatOptions = DEFAULTS) -> str:
        """Return the text of the prompt. Raises Problem, a 400, if the template fails."""
        values = {
            **self._tokens,
            **options.template_kwargs,
            "messages": as_mappings(messages),
            "add_generation_prompt": options.add_generation_prompt,
        }
        try:
            text = self._template.render(values)
        except Exception as error:  # whatever the template does with these messages
            kind = "" if isinstance(error, TemplateError) else f"{type(error).__name__}: "
            what = f"messages: the chat template fails: {kind}{first_line(error)}"
            raise Problem(400, what, param="messages") from None
        return _open_end(text, messages[-1].text) if options.continue_final_message else text


def _open_end(text: str, final: str) -> str:
    """Return the text as far as the final message goes. Raises Problem if it is not in there."""
    for written in (final, final.strip()):
        if written and (at := text.rfind(written)) >= 0:
            return text[: at + len(written)]
    what = "continue_final_message: the chat template changes the final message, or it is empty"
    raise Problem(400, what, param="continue_final_message")


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
