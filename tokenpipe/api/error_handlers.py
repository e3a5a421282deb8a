"""Answer with an error in OpenAI's form, whatever raised it."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from .json_text import json_bytes
from .problems import Problem


def add_error_handlers(app: FastAPI) -> None:
    """Handle our problems and Starlette's own errors."""
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(HTTPException, _http_error)


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    headers = {"content-type": "application/json", **error.headers}
    return Response(json_bytes(error.body), error.status, headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return await _problem(request, Problem(error.status_code, str(error.detail)))
