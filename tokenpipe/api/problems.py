"""Say what went wrong in OpenAI's form: status, message, type, the field's name, a code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenpipe.errors import first_line
from tokenpipe.types import ErrorCode, RequestOutput

RETRY_AFTER_S = 1
PROMPT = "prompt_token_ids"  # what the pipeline calls the prompt; each endpoint has its own name
STATUS = {
    ErrorCode.INVALID: 400,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.LOST: 503,
    ErrorCode.SLOW: 503,
    ErrorCode.GAP: 503,
    ErrorCode.INTERNAL: 500,
}
"""The HTTP status of each error of a request: 503 is what another attempt may not meet again."""


class Problem(Exception):
    """An answer that is an error. `param` is the field to blame, where one is."""

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
        """The JSON of it."""
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
        """What goes beside it."""
        return {"retry-after": str(RETRY_AFTER_S)} if self.status == 503 else {}

    @property
    def event(self) -> bytes:
        """The last event of a stream that had begun."""
        return b"data: " + json.dumps(self.body).encode() + b"\n\n"


def unavailable(message: str) -> Problem:
    """Say that it may work in a moment, or at another server."""
    return Problem(503, message, code="unavailable")


def of_output(output: RequestOutput, prompt_field: str) -> Problem:
    """Say what an output with finish reason "error" means for its caller.

    `prompt_field` is what the endpoint calls `prompt_token_ids`.
    """
    code = output.error_code or ErrorCode.INTERNAL
    text = output.error or "the request failed"
    if code is not ErrorCode.INVALID:
        text = first_line(text)
    field = prompt_field if output.error_field == PROMPT else output.error_field
    return Problem(STATUS[code], text, param=field, code=code.name.lower())
