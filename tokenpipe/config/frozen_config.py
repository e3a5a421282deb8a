"""Base class of frozen configuration. One error lists everything that is wrong, a line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from tokenpipe.errors import ConfigError

from .problem_lines import Problem, line_of, lines_of, problems_of
from .yamldoc import KeyPath, YamlDocument, load_yaml


class Conflict(NamedTuple):
    """Values that are valid alone and invalid together."""

    key: KeyPath  # the error is reported here
    what: str
    others: tuple[KeyPath, ...]  # the other keys of the combination


class ConflictError(Exception):
    """Carries all conflicts of one configuration."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        super().__init__(
            "\n".join(line_of(conflict.key, conflict.what, None) for conflict in conflicts)
        )
        self.conflicts = conflicts


class FrozenConfig(BaseModel, frozen=True):
    """A frozen value with declared keys. A ConfigError lists all problems at once.

    Types are strict: a bool is never an int, a string never a number. Unknown keys are refused.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    if not TYPE_CHECKING:  # the type checker keeps the field-by-field signature

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except (ValidationError, ConflictError) as error:
                problems = _all_problems(type(self), values, error)
                raise ConfigError("\n".join(lines_of(problems, None))) from None

        # Makes pydantic validate a nested section without this __init__, so that one error holds
        # the problems of all sections.
        __init__.__pydantic_base_init__ = True

    def model_post_init(self, _context: Any, /) -> None:
        """Raise ConflictError if values do not fit one another."""
        conflicts = list(self.conflicts())
        if conflicts:
            raise ConflictError(conflicts)

    def conflicts(self) -> Iterable[Conflict]:
        """Yield the values that do not fit one another. A subclass overrides this."""
        return ()

    @classmethod
    def loads(cls, text: str, name: str = "<yaml>") -> Self:
        """Read YAML text; errors call it `name`. An empty text gives the defaults.

        Raises ConfigError.
        """
        document = load_yaml(text, name)
        return cls.checked({} if document.value is None else document.value, document)

    @classmethod
    def checked(cls, value: Any, document: YamlDocument | None = None) -> Self:
        """Make a configuration from plain values. Raises ConfigError.

        With a document the error names file and line.
        """
        problems = [] if document is None else list(document.problems)
        try:
            made = cls.model_validate(value)
        except (ValidationError, ConflictError) as error:
            problems += lines_of(_all_problems(cls, value, error), document)
        if problems:
            raise ConfigError("\n".join(problems))
        return made


def _all_problems(
    model: type[FrozenConfig], value: Any, error: ValidationError | ConflictError
) -> list[Problem]:
    """Return the problems of single keys, and the conflicts among the other keys."""
    if isinstance(error, ConflictError):
        return [(conflict.key, conflict.what) for conflict in error.conflicts]
    problems = problems_of(error, model)
    wrong = [path for path, _ in problems]
    rest = value
    for path in wrong:
        rest = _without(rest, path)
    try:
        model.model_validate(rest)
    except ValidationError:  # `value` is no mapping
        return problems
    except ConflictError as also:
        problems += [
            (conflict.key, conflict.what)
            for conflict in also.conflicts
            if not any(
                _touch(key, path) for key in (conflict.key, *conflict.others) for path in wrong
            )
        ]
    return problems


def _without(value: Any, path: KeyPath) -> Any:
    """Return a copy of a mapping without the value at `path`. A list on the path goes whole."""
    if not path or not isinstance(value, Mapping) or path[0] not in value:
        return value
    rest = {key: item for key, item in value.items() if key != path[0]}
    if len(path) > 1 and isinstance(value[path[0]], Mapping):
        rest[path[0]] = _without(value[path[0]], path[1:])
    return rest


def _touch(one: KeyPath, other: KeyPath) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]
