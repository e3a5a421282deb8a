"""A streamed call in a thread."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from typing import Any

import httpx

from tests.conftest import eventually
from tests.serve.running import Running


class Caller(threading.Thread):
    """A streamed call. It counts its tokens, and keeps its choices, its last event and its time."""

    def __init__(
        self, server: Running, tokens: int, prompt: Sequence[int] = (1,), **fields: Any
    ) -> None:
        super().__init__()
        self._server, self._asked, self._prompt = server, tokens, list(prompt)
        self._fields = fields
        self.tokens = 0
        self.choices: list[dict[str, Any]] = []
        self.usage: dict[str, Any] | None = None
        self.reason: str | None = None
        self.error: dict[str, Any] = {}
        self.done = False
        self.failed = ""
        self.ended = 0.0
        self.start()

    def run(self) -> None:
        body = {
            "prompt": self._prompt,
            "max_tokens": self._asked,
            "stream": True,
            "return_token_ids": True,
            **self._fields,
        }
        try:
            url = f"{self._server.url}/v1/completions"
            # A client each, and no time spent on reading the certificates that it does not need.
            with httpx.stream("POST", url, json=body, timeout=60, verify=False) as answer:
                for line in answer.iter_lines():
                    self._take(line.removeprefix("data: "))
        except httpx.HTTPError as error:
            self.failed = repr(error)
        self.ended = time.monotonic()

    def _take(self, data: str) -> None:
        if data == "[DONE]":
            self.done = True
        elif data:
            event = json.loads(data)
            self.error = event.get("error", {})
            self.usage = event.get("usage")
            for choice in event.get("choices", ()):
                self.choices.append(choice)
                self.tokens += len(choice["token_ids"])
                self.reason = choice["finish_reason"]


def open_streams(server: Running, count: int) -> list[Caller]:
    """Return calls that have their first tokens."""
    callers = [Caller(server, 1_000_000) for _ in range(count)]
    assert eventually(lambda: all(caller.tokens for caller in callers), 20.0)
    return callers
