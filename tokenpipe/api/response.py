"""Give one answer: submit, wait for the first output, then stream or collect; bear every end.

The answer's status is decided by the first output, so that what the engine refuses is an HTTP
error. A caller that leaves, a reader that stalls, the end of the server and the death of the engine
each end this answer and no other.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any

from starlette.responses import Response

from tokenpipe.client import AsyncClient, AsyncSamples, AsyncStream
from tokenpipe.errors import FieldError, FrameTooLarge, LaneFull, TokenpipeError, first_line
from tokenpipe.types import FinishReason, RequestOutput, SamplingParams

from .formats import Choice, Form
from .merge import merged
from .problems import PROMPT, Problem, of_output, unavailable
from .server_state import ServerState
from .text_codec import Text
from .usage import Tally

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
Outputs = AsyncStream | AsyncSamples

DONE = b"data: [DONE]\n\n"
LAST_WORD_S = 0.2
_EVENT_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_log = logging.getLogger("tokenpipe.api")


class Reply(Response):
    """An ASGI answer; made by an endpoint, run by the server."""

    background = None

    def __init__(
        self,
        state: ServerState,
        form: Form,
        text: Text,
        prompts: Sequence[Sequence[int]],
        params: Sequence[SamplingParams],  # of each prompt; they differ in max_tokens alone
        extra: bytes,
        *,
        request_id: str,
        stream: bool,
        with_usage: bool,
    ) -> None:
        self._state = state
        self._form = form
        self._text = text
        self._prompts = prompts
        self._params = params
        self._n = params[0].n
        self._extra = extra
        self._id = request_id
        self._stream = stream
        self._with_usage = with_usage
        self._begun = False
        self._over = False
        self._gone = False  # the caller
        self._ending: Problem | None = None
        self._sending_since = 0.0
        self._transport: Any = None
        self._task: asyncio.Task[Any] | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer."""
        self._task = asyncio.current_task()
        self._transport = scope.get("state", {}).get("transport")
        self._send_body: Send = scope.get("state", {}).get("send", send)
        try:
            self._state.admit(self)
        except Problem as problem:
            await self._last_word(send, problem)
            return
        watch = asyncio.ensure_future(self._watch(receive))
        outputs: list[Outputs] = []
        try:
            self._submit(self._state.link.client(), outputs)
            items = outputs[0] if len(outputs) == 1 else merged(outputs)
            await (
                self._send_events(items, send) if self._stream else self._send_whole(items, send)
            )
        except Problem as problem:
            await self._last_word(send, problem)
        except TokenpipeError as error:  # the engine is gone
            await self._last_word(send, unavailable(first_line(error)))
        except asyncio.CancelledError:
            if self._ending is not None:
                await self._last_word(send, self._ending)
            elif not self._gone:
                raise
        finally:
            self._over = True
            watch.cancel()
            for output in outputs:
                await output.aclose()
            self._state.leave(self)

    # --- what may end it ---

    def end(self, problem: Problem) -> None:
        """End it with this as its last word."""
        if not self._over and self._task is not None and self._ending is None:
            self._ending = problem
            self._task.cancel()

    def check(self, now: float) -> None:
        """Cut the caller off where it has not read for too long."""
        patience = self._state.settings.topology.api.timeout_send
        if self._sending_since and now - self._sending_since > patience:
            _log.warning("request %s: its reader took nothing for %g s", self._id, patience)
            self._cut()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        if not self._over and self._task is not None:
            self._gone = True
            self._task.cancel()

    def _cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- the work ---

    def _submit(self, client: AsyncClient, outputs: list[Outputs]) -> None:
        try:
            for prompt, params in zip(self._prompts, self._params, strict=True):
                outputs.append(client.generate(prompt, params, self._id, self._extra))
        except LaneFull:
            raise unavailable("the engine does not keep up") from None
        except FrameTooLarge as error:
            field = None if self._extra else self._form.prompt_field
            raise Problem(413, str(error), param=field) from None
        except FieldError as error:
            field = self._form.prompt_field if error.field == PROMPT else error.field
            raise Problem(400, f"{field}: {error.problem}", param=field) from None

    async def _send_events(self, items: AsyncIterator[Any], send: Send) -> None:
        form, text, n = self._form, self._text, self._n
        single = len(self._prompts) == 1
        left = choices = len(self._prompts) * n
        tally = Tally(self._prompts)
        async for item in items:
            job, output = (0, item) if single else item
            if output.finish_reason is FinishReason.ERROR:
                raise of_output(output, form.prompt_field)
            event = form.chunk(job * n + output.index, text.of(output), output)
            if not self._begun:
                self._begun = True
                await send(
                    {"type": "http.response.start", "status": 200, "headers": _EVENT_HEADERS}
                )
                event = form.opening(choices) + event
            if output.finish_reason is not None:
                left -= 1
                tally.add(job, output)
                if not left:
                    if self._with_usage:
                        event += form.usage(tally.usage)
                    event += DONE
            self._sending_since = time.monotonic()
            # Past the middleware, which has seen the start and looks at nothing else.
            await self._send_body(
                {"type": "http.response.body", "body": event, "more_body": bool(left)}
            )
            self._sending_since = 0.0
        if left:
            raise unavailable("the engine is gone")

    async def _send_whole(self, items: AsyncIterator[Any], send: Send) -> None:
        n = self._n
        single = len(self._prompts) == 1
        choices = [Choice() for _ in range(len(self._prompts) * n)]
        tally = Tally(self._prompts)
        async for item in items:
            job, output = (0, item) if single else item
            assert isinstance(output, RequestOutput)
            if output.finish_reason is FinishReason.ERROR:
                raise of_output(output, self._form.prompt_field)
            choices[job * n + output.index].add(self._text.of(output), output)
            tally.add(job, output)
        if any(choice.finish_reason is None for choice in choices):
            raise unavailable("the engine is gone")
        await self._send_json(send, 200, self._form.whole(choices, tally.usage), {})

    async def _last_word(self, send: Send, problem: Problem) -> None:
        """Say a problem in the way that is still open: a status, or an event at the end."""
        if self._gone:
            return
        try:
            await asyncio.wait_for(self._say(send, problem), LAST_WORD_S)
        except asyncio.TimeoutError:
            self._cut()  # it reads nothing

    async def _say(self, send: Send, problem: Problem) -> None:
        if not self._begun:
            await self._send_json(send, problem.status, problem.body, problem.headers)
        else:
            await send({"type": "http.response.body", "body": problem.event, "more_body": False})

    async def _send_json(self, send: Send, status: int, body: Any, headers: Any) -> None:
        raw = json.dumps(body).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(raw))]
        head += [(name.encode(), value.encode()) for name, value in headers.items()]
        self._begun = True
        with suppress(ConnectionError):
            await send({"type": "http.response.start", "status": status, "headers": head})
            self._sending_since = time.monotonic()
            await send({"type": "http.response.body", "body": raw, "more_body": False})
            self._sending_since = 0.0
