"""Answer with an error in OpenAI's form, whatever raised it."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from .json_text import json_bytes
from .problems import Problem, failure_of


def add_error_handlers(app: FastAPI) -> None:
    """Handle our problems, Starlette's own errors, and whatever else escapes."""
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _failure)


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    headers = {"content-type": "application/json", **error.headers}
    return Response(json_bytes(error.body), error.status, headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return await _problem(request, Problem(error.status_code, str(error.detail)))


async def _failure(request: Request, error: Exception) -> Response:
    """Answer a 500. Starlette raises the error again, and the server logs it."""
    return await _problem(request, failure_of(error))
