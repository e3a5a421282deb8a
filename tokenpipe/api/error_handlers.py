"""Answer with an error in OpenAI's form, whatever raised it."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from .problems import Problem
from .request_models import UNION_ERRORS

SHOWN = 80  # characters of a wrong value


def add_error_handlers(app: FastAPI) -> None:
    """Handle our problems, pydantic's refusals of a body, and Starlette's own errors."""
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _wrong_body)
    app.add_exception_handler(HTTPException, _http_error)


def problem_of_body(mistake: dict[str, Any]) -> Problem:
    """Return the problem of a body; `mistake` is the first of pydantic's list."""
    if mistake["type"] == "json_invalid":
        reason = mistake.get("ctx", {}).get("error", mistake["msg"])
        return Problem(400, f"the body is not JSON: {reason}")
    path = [str(part) for part in mistake["loc"] if part != "body"]
    param = path[0] if path else None
    value = json.dumps(mistake.get("input"), default=str)
    reason = mistake["msg"]
    for i, name in enumerate(path[:-1]):
        if name in UNION_ERRORS:  # pydantic's name of one of the field's types follows
            path, reason = path[: i + 1], UNION_ERRORS[name]
            break
    what = f"{'.'.join(path) or 'body'}: {reason} (got {value[:SHOWN]})"
    return Problem(400, what, param=param, code="invalid_value")


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return JSONResponse(error.body, error.status, dict(error.headers))


async def _wrong_body(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return await _problem(request, problem_of_body(error.errors()[0]))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return await _problem(request, Problem(error.status_code, str(error.detail)))
