"""Turn what pydantic found into lines that read `file:line: key.path: what (got ...)`."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from .yamldoc import KeyPath, YamlDocument, show_path

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
    """Write one problem as one line."""
    where = "" if document is None else f"{document.where(path)}: "
    return f"{where}{show_path(path) or 'document'}: {what}"


def lines_of(
    error: ValidationError, model: type[BaseModel], document: YamlDocument | None
) -> list[str]:
    """Write all problems, in the order of the file where there is one."""
    items = error.errors(include_url=False)
    if document is not None:
        items.sort(key=lambda item: document.line(item["loc"]))
    return [line_of(item["loc"], _what(item, model), document) for item in items]


def _what(item: Mapping[str, Any], model: type[BaseModel]) -> str:
    kind, path = item["type"], item["loc"]
    if kind == "extra_forbidden":
        known = _keys_at(model, path[:-1])
        close = difflib.get_close_matches(str(path[-1]), known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
        return f"unknown key; {hint}"
    message = str(item["msg"]).removeprefix("Input should be ").replace("'", '"')
    return f"must be {_WANTED.get(kind, message)} (got {_shown(item['input'])})"


def _keys_at(model: type[BaseModel], path: KeyPath) -> list[str]:
    for step in path:
        section = model.model_fields[str(step)].annotation
        assert isinstance(section, type) and issubclass(section, BaseModel)
        model = section
    return sorted(model.model_fields)


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
