"""The Jinja environment that the templates of Hugging Face's models are written for."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

Now = Callable[[], datetime]


class GenerationTag(Extension):
    """`{% generation %}` marks what the model said, for training. Here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 reads a set of the class

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Return the statements inside of the tag."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def template_environment(now: Now = datetime.now) -> ImmutableSandboxedEnvironment:
    """Return a sandbox with the tags, functions and filters that these templates use.

    `now` is the time that `strftime_now` writes.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag]
    )

    def strftime_now(form: str) -> str:
        return now().strftime(form)

    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = strftime_now
    environment.filters["tojson"] = _tojson
    return environment


def _raise(message: str) -> Any:
    raise TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
