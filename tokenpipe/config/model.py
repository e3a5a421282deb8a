"""Base of frozen configuration: what is wrong is said as lines a person can act on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from tokenpipe.errors import ConfigError

from .wording import Problem, line_of, lines_of, problems_of
from .yamldoc import KeyPath, YamlDocument, load_yaml


class Misfit(NamedTuple):
    """Values that do not fit one another: where to say so, what, and the other keys it is about."""

    key: KeyPath
    what: str
    others: tuple[KeyPath, ...]


class Impossible(Exception):
    """Carries every combination that cannot be."""

    def __init__(self, misfits: list[Misfit]) -> None:
        super().__init__("\n".join(line_of(misfit.key, misfit.what, None) for misfit in misfits))
        self.misfits = misfits


class FrozenConfig(BaseModel, frozen=True):
    """A frozen value with declared keys; any misfit is a ConfigError that lists all of them.

    Types are strict (a bool is never an int, a string never a number), unknown keys are refused.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    if not TYPE_CHECKING:  # the type checker keeps the field-by-field signature

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except (ValidationError, Impossible) as error:
                problems = _all_problems(type(self), values, error)
                raise ConfigError("\n".join(lines_of(problems, None))) from None

        # Makes pydantic validate a nested section without this __init__, so that one error holds
        # the problems of all sections.
        __init__.__pydantic_base_init__ = True

    def model_post_init(self, _context: Any, /) -> None:
        """Refuse what is possible key by key and impossible together."""
        misfits = list(self.impossible())
        if misfits:
            raise Impossible(misfits)

    def impossible(self) -> Iterable[Misfit]:
        """Yield the values that do not fit one another."""
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
        except (ValidationError, Impossible) as error:
            problems += lines_of(_all_problems(cls, value, error), document)
        if problems:
            raise ConfigError("\n".join(problems))
        return made


def _all_problems(
    model: type[FrozenConfig], value: Any, error: ValidationError | Impossible
) -> list[Problem]:
    """Return what is wrong key by key, and the misfits among the keys that are right."""
    if isinstance(error, Impossible):
        return [(misfit.key, misfit.what) for misfit in error.misfits]
    problems = problems_of(error, model)
    wrong = [path for path, _ in problems]
    rest = value
    for path in wrong:
        rest = _without(rest, path)
    try:
        model.model_validate(rest)
    except ValidationError:  # it is no mapping at all
        return problems
    except Impossible as also:
        problems += [
            (misfit.key, misfit.what)
            for misfit in also.misfits
            if not any(_touch(key, path) for key in (misfit.key, *misfit.others) for path in wrong)
        ]
    return problems


def _without(value: Any, path: KeyPath) -> Any:
    """Return a copy of a mapping that lacks what is at `path`; of a list nothing stays."""
    if not path or not isinstance(value, Mapping) or path[0] not in value:
        return value
    rest = {key: item for key, item in value.items() if key != path[0]}
    if len(path) > 1 and isinstance(value[path[0]], Mapping):
        rest[path[0]] = _without(value[path[0]], path[1:])
    return rest


def _touch(one: KeyPath, other: KeyPath) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]
