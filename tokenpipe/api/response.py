"""The response to one call for tokens: submit, wait for the first output, then stream or collect.

The first output decides the status, so a request that the engine refuses gets an HTTP error. This
response, and no other, ends if the caller leaves or reads nothing, if the server ends, or if the
engine dies.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from tokenpipe.client import AsyncClient, AsyncSamples, AsyncStream
from tokenpipe.errors import FieldError, LaneFull, TokenpipeError, first_line
from tokenpipe.types import FinishReason, RequestOutput, SamplingParams

from .formats import ChoiceBuffer, EndpointFormat
from .json_text import json_bytes
from .logprob_formats import ENTRIES_AT_ONCE
from .merge import merged
from .problems import PROMPT, Problem, failure_of, of_output, unavailable
from .request_id import id_header
from .server_state import ServerState
from .slices import Slices, joined
from .text_codec import TextCodec
from .usage import UsageCounter

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
Outputs = AsyncStream | AsyncSamples

DONE = b"data: [DONE]\n\n"
COMMENT = b":\n\n"  # of an event stream; its reader ignores it
FINAL_SEND_S = 0.2  # limit for sending a final error, so that a slow reader cannot delay the end
_EVENT_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_log = logging.getLogger("tokenpipe.api")


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """What one call asks the engine for.

    Args:
        request_id: the caller's, or a random one.
        prompts: token ids of each prompt.
        params: of each prompt; they differ in `max_tokens` only.
        extra: the fields for the executor, as JSON; b"" without any.
        stream: whether the outputs are sent as they come.
        with_usage: whether a stream ends with its usage.
    """

    request_id: str
    prompts: Sequence[Sequence[int]]
    params: Sequence[SamplingParams]
    extra: bytes
    stream: bool
    with_usage: bool

    @property
    def n(self) -> int:
        """How many samples each prompt has."""
        return self.params[0].n


class GenerationResponse(Response):
    """An ASGI response. An endpoint makes it, the server awaits it."""

    background = None

    def __init__(
        self,
        state: ServerState,
        endpoint_format: EndpointFormat,
        codec: TextCodec,
        job: GenerationJob,
    ) -> None:
        self._state = state
        self._format = endpoint_format
        self._codec = codec
        self._job = job
        self._begun = False  # the status is sent
        self._ended = False  # the last bytes are handed to the server
        self._over = False
        self._caller_left = False
        self._ending: Problem | None = None  # what `end` was called with
        self._sending_since = 0.0
        self._comment: asyncio.Task[None] | None = None  # asks whether the caller is there
        self._connection: Any = None  # the server's HttpConnection
        self._task: asyncio.Task[Any] | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Send the whole response."""
        self._task = asyncio.current_task()
        self._connection = scope.get("state", {}).get("connection")
        self._send_body: Send = scope.get("state", {}).get("send", send)
        try:
            self._state.admit(self)
        except Problem as problem:
            await self._send_problem(send, problem)
            return
        watch = asyncio.ensure_future(self._watch_caller(receive))
        streams: list[Outputs] = []
        try:
            await self._submit(self._state.link.client(), streams)
            outputs = streams[0] if len(streams) == 1 else merged(streams)
            await (
                self._send_events(outputs, send)
                if self._job.stream
                else self._send_whole(outputs, send)
            )
        except Problem as problem:
            await self._send_problem(send, problem)
        except TokenpipeError as error:  # the engine is gone
            await self._send_problem(send, unavailable(first_line(error)))
        except Exception as error:
            _log.exception("request %s: the server failed", self._job.request_id)
            await self._send_problem(send, failure_of(error))
        except asyncio.CancelledError:
            if self._ending is not None:
                await self._send_problem(send, self._ending)
            elif not self._caller_left:
                raise
        finally:
            self._over = True
            watch.cancel()
            for stream in streams:
                await stream.aclose()
            self._state.remove(self)

    # --- what may end it ---

    def end(self, problem: Problem) -> None:
        """End it; the problem is its status, or the last event of its stream."""
        if not self._over and self._task is not None and self._ending is None:
            self._ending = problem
            self._task.cancel()

    def check(self, now: float) -> None:
        """End it if the connection is closed; close the connection of a caller that stalls."""
        if self._connection is not None:
            if self._connection.transport.is_closing():
                self._leave()
            elif self._connection.half_closed:
                self._ask_caller()
        patience = self._state.settings.topology.api.timeout_send
        if self._sending_since and now - self._sending_since > patience:
            _log.warning(
                "request %s: its caller read nothing for %g s; the connection is closed",
                self._job.request_id,
                patience,
            )
            self._close_connection()

    async def _watch_caller(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        self._leave()

    def _leave(self) -> None:
        """End it without a word: its caller left."""
        if not self._over and not self._caller_left and self._task is not None:
            self._caller_left = True
            self._task.cancel()

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.transport.abort()

    def _ask_caller(self) -> None:
        """Send a comment once, so that a caller that left answers with a reset."""
        if self._begun and self._job.stream and self._comment is None and not self._sending_since:
            self._comment = asyncio.ensure_future(self._send_comment())

    async def _send_comment(self) -> None:
        if not self._ended:
            await self._send_body(
                {"type": "http.response.body", "body": COMMENT, "more_body": True}
            )

    # --- the work ---

    async def _submit(self, client: AsyncClient, streams: list[Outputs]) -> None:
        job, slices = self._job, Slices()
        try:
            for prompt, params in zip(job.prompts, job.params, strict=True):
                streams.append(client.generate(prompt, params, job.request_id, job.extra))
                await slices.pause()
        except LaneFull:
            raise unavailable("the engine does not keep up") from None
        except FieldError as error:
            field = self._format.prompt_field if error.field == PROMPT else error.field
            raise Problem(400, f"{field}: {error.problem}", param=field) from None

    async def _send_events(self, outputs: AsyncIterator[Any], send: Send) -> None:
        endpoint_format, codec, n = self._format, self._codec, self._job.n
        single = len(self._job.prompts) == 1
        left = choices = len(self._job.prompts) * n
        counter = UsageCounter(self._job.prompts)
        async for item in outputs:
            prompt, output = (0, item) if single else item
            if output.finish_reason is FinishReason.ERROR:
                raise of_output(output, endpoint_format.prompt_field)
            index, text = prompt * n + output.index, codec.text(output)
            if output.logprobs is None or len(output.logprobs) <= ENTRIES_AT_ONCE:
                event = endpoint_format.chunk(index, text, output)
            else:
                event = await joined(endpoint_format.chunk_parts(index, text, output))
            if not self._begun:
                self._begun = True
                headers = [*_EVENT_HEADERS, *id_header(self._job.request_id)]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                event = endpoint_format.opening(choices) + event
            if output.finish_reason is not None:
                left -= 1
                counter.add(prompt, output)
                if not left:
                    if self._job.with_usage:
                        event += endpoint_format.usage(counter.usage)
                    event += DONE
                    self._ended = True
            self._sending_since = time.monotonic()
            # Not through the middleware: it has seen the start, and reads nothing else.
            await self._send_body(
                {"type": "http.response.body", "body": event, "more_body": bool(left)}
            )
            self._sending_since = 0.0
        if left:
            raise unavailable("the engine is gone")

    async def _send_whole(self, outputs: AsyncIterator[Any], send: Send) -> None:
        n = self._job.n
        single = len(self._job.prompts) == 1
        choices = [ChoiceBuffer() for _ in range(len(self._job.prompts) * n)]
        counter = UsageCounter(self._job.prompts)
        async for item in outputs:
            prompt, output = (0, item) if single else item
            assert isinstance(output, RequestOutput)
            if output.finish_reason is FinishReason.ERROR:
                raise of_output(output, self._format.prompt_field)
            choices[prompt * n + output.index].add(self._codec.text(output), output)
            counter.add(prompt, output)
        if any(choice.finish_reason is None for choice in choices):
            raise unavailable("the engine is gone")
        raw = await joined(self._format.whole(choices, counter.usage))
        await self._send_json(send, 200, raw, {})

    async def _send_problem(self, send: Send, problem: Problem) -> None:
        """Send a problem: as the status, or as the last event if the stream has begun."""
        if self._caller_left:
            return
        try:
            await asyncio.wait_for(self._send_final(send, problem), FINAL_SEND_S)
        except asyncio.TimeoutError:
            self._close_connection()  # the caller reads nothing

    async def _send_final(self, send: Send, problem: Problem) -> None:
        if not self._begun:
            raw = json_bytes(problem.body)
            await self._send_json(send, problem.status, raw, problem.headers)
        else:
            self._ended = True
            await send({"type": "http.response.body", "body": problem.event, "more_body": False})

    async def _send_json(self, send: Send, status: int, raw: bytes, headers: Any) -> None:
        pairs = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(raw))]
        pairs += id_header(self._job.request_id)
        pairs += [(name.encode(), value.encode()) for name, value in headers.items()]
        self._begun = True
        with suppress(ConnectionError):
            await send({"type": "http.response.start", "status": status, "headers": pairs})
            self._sending_since = time.monotonic()
            await send({"type": "http.response.body", "body": raw, "more_body": False})
            self._sending_since = 0.0
