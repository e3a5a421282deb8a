"""The endpoints."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from tokenpipe.instance import ModelCard
from tokenpipe.types import SamplingParams

from .body_limit import LimitBody
from .formats import ChatForm, CompletionForm
from .owner import Owner
from .problems import Problem
from .request_check import executor_fields, max_tokens_of
from .request_models import EITHER, AbortAsked, Asked, ChatAsked, CompletionAsked
from .response import Reply
from .server_state import ServerState
from .text_codec import Text, text_for

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's
DEFAULT_CHAT_TOKENS = 1024


def make_app(state: ServerState, owner: Owner | None = None) -> Any:
    """Return the ASGI application of one serving process; `owner` is entered in its lifespan."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        with owner or nullcontext():
            try:
                await state.open()
            except BaseException as error:
                state.failure = error
                state.settings.notifier.failed(f"{type(error).__name__}: {error}")
                await state.close()
                raise
            try:
                yield
            finally:
                await state.close()

    app = FastAPI(title="tokenpipe", lifespan=lifespan, docs_url=None, redoc_url=None)
    api = _Api(state, text_for(state.settings.topology, state.settings.plain_text))
    app.add_api_route("/v1/completions", api.completions, methods=["POST"], response_model=None)
    app.add_api_route("/v1/chat/completions", api.chat, methods=["POST"], response_model=None)
    app.add_api_route("/v1/models", api.models, methods=["GET"], response_model=None)
    app.add_api_route("/v1/abort", api.abort, methods=["POST"], response_model=None)
    app.add_api_route("/health", api.health, methods=["GET"], response_model=None)
    app.add_api_route("/ready", api.ready, methods=["GET"], response_model=None)
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    return LimitBody(app, state.settings.topology.api.max_body_bytes)


class _Api:
    def __init__(self, state: ServerState, text: Text) -> None:
        self._state = state
        self._text = text
        self._model = state.settings.topology.api.model
        self._born = 0

    async def completions(self, asked: CompletionAsked, request: Request) -> Response:
        """Continue a prompt, or several."""
        card, extra = self._check(asked)
        prompts = [
            self._text.encode(prompt, "prompt") if isinstance(prompt, str) else prompt
            for prompt in asked.prompts
        ]
        params = [
            asked.params(
                max_tokens_of(
                    asked.given_max_tokens,
                    DEFAULT_COMPLETION_TOKENS,
                    (CompletionForm.prompt_field, len(prompt)),
                    card,
                ),
                asked.logprobs,
            )
            for prompt in prompts
        ]
        return self._reply(CompletionForm, asked, request, prompts, params, extra)

    async def chat(self, asked: ChatAsked, request: Request) -> Response:
        """Give the next message of a conversation."""
        card, extra = self._check(asked)
        prompt = self._text.encode_chat(asked.messages)
        most = max_tokens_of(
            asked.given_max_tokens,
            DEFAULT_CHAT_TOKENS,
            (ChatForm.prompt_field, len(prompt)),
            card,
        )
        params = [asked.params(most, asked.wanted_logprobs)]
        return self._reply(ChatForm, asked, request, [prompt], params, extra)

    def _check(self, asked: Asked) -> tuple[ModelCard, bytes]:
        """Return the model card, and the fields for the executor. Raises Problem."""
        if asked.model is not None and asked.model != self._model:
            said = f"model: there is no {asked.model!r}; this server has {self._model!r}"
            raise Problem(404, said, param="model", code="model_not_found")
        card = self._state.known_model_card()
        extra = executor_fields(asked, card)
        if asked.stops and not self._text.can_stop:
            said = "stop: needs a tokenizer; stop_token_ids does not"
            raise Problem(400, said, param="stop", code="no_tokenizer")
        return card, extra

    def _reply(
        self,
        form: type[CompletionForm] | type[ChatForm],
        asked: Asked,
        request: Request,
        prompts: Sequence[Sequence[int]],
        params: Sequence[SamplingParams],
        extra: bytes,
    ) -> Response:
        given = asked.request_id or request.headers.get("x-request-id", "")[:256]
        request_id = given or secrets.token_hex(12)
        with_usage = bool(asked.stream_options and asked.stream_options.include_usage)
        made = form(
            request_id,
            self._model,
            self._text,
            with_usage=with_usage,
            with_ids=asked.return_token_ids,
        )
        return Reply(
            self._state,
            made,
            self._text,
            prompts,
            params,
            extra,
            request_id=request_id,
            stream=bool(asked.stream),
            with_usage=with_usage,
        )

    async def models(self) -> Response:
        """List the one model."""
        card = self._state.model_card()
        one = {
            "id": self._model,
            "object": "model",
            "created": 0,
            "owned_by": "tokenpipe",
            "max_model_len": None if card is None else card.max_model_len,
        }
        return JSONResponse({"object": "list", "data": [one]})

    async def abort(self, asked: AbortAsked) -> Response:
        """End the live requests of an id, whoever serves them; each gets its final output."""
        return JSONResponse({"aborted": await self._state.post.ask(asked.request_id)})

    async def health(self) -> Response:
        """Say that this process lives."""
        return JSONResponse({"status": "ok"})

    async def ready(self) -> Response:
        """Say whether every hop goes round, and name those that do not."""
        health = self._state.health()
        body = {
            "ready": not health.problems,
            "problems": dict(health.problems),
            "ranks_up": list(health.ranks_up),
            "running": health.running,
            "waiting": health.waiting,
        }
        return JSONResponse(body, 503 if health.problems else 200)


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return JSONResponse(error.body, error.status, dict(error.headers))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        said = f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}"
        return await _problem(request, Problem(400, said))
    where = [str(part) for part in first["loc"] if part != "body"]
    param = where[0] if where else None
    got = json.dumps(first.get("input"), default=str)
    what = first["msg"]
    for i, name in enumerate(where[:-1]):
        if name in EITHER:  # behind it is pydantic's name for one of the things it may be
            where, what = where[: i + 1], EITHER[name]
            break
    said = f"{'.'.join(where) or 'body'}: {what} (got {got[:80]})"
    return await _problem(request, Problem(400, said, param=param, code="invalid_value"))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return await _problem(request, Problem(error.status_code, str(error.detail)))
