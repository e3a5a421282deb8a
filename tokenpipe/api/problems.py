"""Errors of the API in OpenAI's form: status, message, type, the name of a field, a code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenpipe.errors import first_line
from tokenpipe.types import ErrorCode, RequestOutput

from .json_text import json_bytes

RETRY_AFTER_S = 1
PROMPT = "prompt_token_ids"  # the pipeline's name of the prompt; each endpoint has its own
STATUS = {
    ErrorCode.INVALID: 400,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.LOST: 503,
    ErrorCode.SLOW: 503,
    ErrorCode.GAP: 503,
    ErrorCode.INTERNAL: 500,
    ErrorCode.CRASHES: 500,
}
"""The HTTP status of each error code. A 503 means that another attempt may succeed."""


class Problem(Exception):
    """An error that is the answer to a call. `param` is the name of the field to blame, or None."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body of the answer."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        if self.status == 503:
            kind = "service_unavailable"
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code,
            }
        }

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that only an error has."""
        return {"retry-after": str(RETRY_AFTER_S)} if self.status == 503 else {}

    @property
    def event(self) -> bytes:
        """The error as the last event of a stream that has begun."""
        return b"data: " + json_bytes(self.body) + b"\n\n"


def unavailable(message: str) -> Problem:
    """Return a 503: another attempt may succeed, in a moment or at another server."""
    return Problem(503, message, code="unavailable")


def failure_of(error: Exception) -> Problem:
    """Return a 500 for an error of the server. Its text may have paths: it is only in the log."""
    return Problem(500, f"the server failed: {type(error).__name__}", code="internal")


def of_output(output: RequestOutput, prompt_field: str) -> Problem:
    """Return the error of an output whose finish reason is "error".

    `prompt_field` is the endpoint's name of `prompt_token_ids`.
    """
    code = output.error_code or ErrorCode.INTERNAL
    text = output.error or "the request failed"
    if code is not ErrorCode.INVALID:
        text = first_line(text)  # the end of a log may follow
    field = prompt_field if output.error_field == PROMPT else output.error_field
    return Problem(STATUS[code], text, param=field, code=code.name.lower())
