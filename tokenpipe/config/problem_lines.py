"""Write pydantic's errors as lines of the form `file:line: key.path: problem (got ...)`."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from .yamldoc import KeyPath, YamlDocument, show_path

Problem = tuple[KeyPath, str]  # the key, and what is wrong with its value

_WANTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a string",
    "string_too_short": "a non-empty string",
    "string_pattern_mismatch": "a plain file name",
    "tuple_type": "a list",
    "model_type": "a mapping of keys",
    "is_instance_of": "a path",
    "path_type": "a path",
}


def line_of(path: KeyPath, what: str, document: YamlDocument | None) -> str:
    """Return one problem as one line."""
    where = "" if document is None else f"{document.where(path)}: "
    return f"{where}{show_path(path) or 'document'}: {what}"


def lines_of(problems: Iterable[Problem], document: YamlDocument | None) -> list[str]:
    """Return one line for each problem, in the order of the document if there is one."""
    found = list(problems)
    if document is not None:
        found.sort(key=lambda problem: document.line(problem[0]))
    return [line_of(path, what, document) for path, what in found]


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Return the problems of single keys that pydantic found."""
    return [(item["loc"], _what(item, model)) for item in error.errors(include_url=False)]


def _what(item: Mapping[str, Any], model: type[BaseModel]) -> str:
    kind, path = item["type"], item["loc"]
    if kind == "extra_forbidden":
        known = _keys_at(model, path[:-1])
        close = difflib.get_close_matches(str(path[-1]), known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
        return f"unknown key; {hint}"
    if kind in ("int_type", "float_type") and (unit := _unit_at(model, path)):
        return f"must be {unit} (got {_shown(item['input'])})"
    message = str(item["msg"]).removeprefix("Input should be ").replace("'", '"')
    return f"must be {_WANTED.get(kind, message)} (got {_shown(item['input'])})"


def _keys_at(model: type[BaseModel], path: KeyPath) -> list[str]:
    for step in path:
        section = model.model_fields[str(step)].annotation
        assert isinstance(section, type) and issubclass(section, BaseModel)
        model = section
    return sorted(model.model_fields)


def _unit_at(model: type[BaseModel], path: KeyPath) -> str | None:
    """Return the description of the key at `path`: the unit of its number."""
    for step in path[:-1]:
        section = model.model_fields[str(step)].annotation
        if not (isinstance(section, type) and issubclass(section, BaseModel)):
            return None  # an entry of a list
        model = section
    return model.model_fields[str(path[-1])].description


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
