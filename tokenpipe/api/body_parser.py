"""Read the body of a request as JSON and check its fields. A body of bytes alone costs little.

The cost of a body lies in its values: each becomes an object. They are counted before one is made.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from .problems import Problem
from .request_models import UNION_ERRORS
from .slices import Slices

SHOWN = 80  # characters of a wrong value
SPARE_VALUES = 1 << 16  # that a body may have beside the ids of its prompts
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_VALUE_MARKS = (b",", b"[", b"{")
_JSON = json.JSONEncoder(default=str)

Body = TypeVar("Body", bound=BaseModel)


class BodyParser:
    """Reads the bodies of one server."""

    def __init__(self, max_prompt_ids: int) -> None:
        self._max_values = max_prompt_ids + SPARE_VALUES

    async def parse(self, request: Request, model: type[Body]) -> tuple[Body, int]:
        """Return the checked body, and its size in bytes. Raises Problem, a 400 or 413."""
        slices = Slices()
        try:
            raw = await request.body()
        except ClientDisconnect:
            raise Problem(400, "the caller left before the end of the body") from None
        if values_at_most(raw, self._max_values) > self._max_values:
            await slices.pause()
            raise Problem(413, f"the body has more than {self._max_values} values")
        await slices.pause()
        try:
            given = json.loads(raw)
        except RecursionError:
            raise Problem(400, "the body is nested too deeply") from None
        except ValueError as error:
            raise Problem(400, f"the body is not JSON: {error}") from None
        await slices.pause()
        if _SURROGATE.search(raw):
            _refuse_halves(given)
        try:
            return model.model_validate(given), len(raw)
        except ValidationError as error:
            raise problem_of_body(error.errors(include_url=False)[0]) from None


def values_at_most(raw: bytes, enough: int) -> int:
    """Return an upper bound of the number of JSON values in a body, exact if above `enough`.

    Marks within strings are no values. Without any parsing, they are left out only if counting
    them gives too many.
    """
    count = _marks(raw)
    if count > enough:
        plain = raw.replace(rb"\\", b"").replace(rb"\"", b"")
        strings = plain.count(b'"') // 2
        if strings > enough:
            return strings
        count = _marks(b"".join(plain.split(b'"')[::2]))
    return count


def _marks(raw: bytes) -> int:
    return 1 + sum(raw.count(mark) for mark in _VALUE_MARKS)


def _refuse_halves(given: Any) -> None:
    """Raise Problem for a text that is no Unicode: it has one half of a surrogate pair."""
    fields = given.items() if isinstance(given, dict) else [("body", given)]
    for name, value in fields:
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            shown = name.encode(errors="backslashreplace").decode()
            what = f"{shown}: a text has half of a surrogate pair"
            raise Problem(400, what, param=shown, code="invalid_value") from None


def problem_of_body(mistake: Any) -> Problem:
    """Return the problem of a body; `mistake` is the first of pydantic's list."""
    path = [str(part) for part in mistake["loc"]]
    param = path[0] if path else None
    value = "".join(islice(_JSON.iterencode(mistake.get("input")), SHOWN))  # not all of a million
    reason = mistake["msg"]
    for i, name in enumerate(path[:-1]):
        if name in UNION_ERRORS:  # pydantic's name of one of the field's types follows
            path, reason = path[: i + 1], UNION_ERRORS[name]
            break
    what = f"{'.'.join(path) or 'body'}: {reason} (got {value[:SHOWN]})"
    return Problem(400, what, param=param, code="invalid_value")
