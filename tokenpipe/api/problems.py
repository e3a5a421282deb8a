"""Say what went wrong in OpenAI's form: status, message, type, the field's name, a code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

RETRY_AFTER_S = 1
UNAVAILABLE = "unavailable: "
INVALID = "invalid: "


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


def of_output(error: str | None) -> Problem:
    """Say what an output with finish reason "error" means for its caller.

    What the engine refused by the words "invalid: ..." is the caller's fault; lost processes and
    full or closing ones are nobody's, and a second attempt is worth it.
    """
    text = error or "the request failed"
    if text.startswith(INVALID):
        return Problem(400, text.removeprefix(INVALID))
    if text.startswith(UNAVAILABLE):
        return unavailable(text.removeprefix(UNAVAILABLE))
    first = text.split("\n", 1)[0]  # what follows are the last words of a log
    if "was lost" in first or "is gone" in first or "shutting down" in first:
        return unavailable(first)
    return Problem(500, first, code="engine_error")
