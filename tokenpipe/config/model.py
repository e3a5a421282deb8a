"""Base of frozen configuration: what is wrong is said as lines a person can act on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from tokenpipe.errors import ConfigError

from .wording import line_of, lines_of
from .yamldoc import KeyPath, YamlDocument, load_yaml


class Impossible(Exception):
    """Carries (key path, what) of every combination that cannot be."""

    def __init__(self, problems: list[tuple[KeyPath, str]]) -> None:
        super().__init__("\n".join(line_of(key, what, None) for key, what in problems))
        self.problems = problems


class FrozenConfig(BaseModel):
    """A frozen value with declared keys; any misfit is a ConfigError that lists all of them.

    Types are strict (a bool is never an int, a string never a number), unknown keys are refused.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    if not TYPE_CHECKING:  # the type checker keeps the field-by-field signature

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError("\n".join(lines_of(error, type(self), None))) from None
            except Impossible as error:
                raise ConfigError(str(error)) from None

        # Makes pydantic validate a nested section without this __init__, so that one error holds
        # the problems of all sections.
        __init__.__pydantic_base_init__ = True

    def model_post_init(self, _context: Any, /) -> None:
        """Refuse what is possible key by key and impossible together."""
        problems = list(self.impossible())
        if problems:
            raise Impossible(problems)

    def impossible(self) -> Iterable[tuple[KeyPath, str]]:
        """Yield (key path, what) for values that do not fit one another."""
        return ()

    @classmethod
    def loads(cls, text: str, name: str = "<yaml>") -> Self:
        """Read YAML text; `name` is what errors call it. An empty text gives the defaults."""
        document = load_yaml(text, name)
        return cls.checked({} if document.value is None else document.value, document)

    @classmethod
    def checked(cls, value: Any, document: YamlDocument | None = None) -> Self:
        """Make one from plain values; errors name file and line where there is a document."""
        problems = [] if document is None else list(document.problems)
        try:
            made = cls.model_validate(value)
        except ValidationError as error:
            problems += lines_of(error, cls, document)
        except Impossible as error:
            problems += [line_of(key, what, document) for key, what in error.problems]
        if problems:
            raise ConfigError("\n".join(problems))
        return made
