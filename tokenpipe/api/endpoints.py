"""The endpoints of the API: check a request, and make its response."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from starlette.responses import JSONResponse, Response

from tokenpipe.instance import ModelCard
from tokenpipe.types import SamplingParams

from .body_parser import BodyParser
from .formats import ChatFormat, CompletionFormat, FormatOptions
from .problems import Problem
from .request_check import check_choices, check_ids, executor_fields, max_tokens_of
from .request_models import (
    AbortRequest,
    ChatCompletionRequest,
    CompletionRequest,
    GenerationRequest,
    StreamOptions,
)
from .response import GenerationJob, GenerationResponse
from .server_state import ServerState
from .text_codec import TextCodec

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's
DEFAULT_CHAT_TOKENS = 1024
MAX_REQUEST_ID = 512  # characters of a header that names the request


class Endpoints:
    """The endpoints of one process. A method that refuses a request raises Problem."""

    def __init__(self, state: ServerState, codec: TextCodec) -> None:
        self._state = state
        self._codec = codec
        self._api = state.settings.topology.api
        self._model = self._api.model
        self._parser = BodyParser(self._api.max_prompt_ids)
        self._off_loop = state.off_loop

    async def completions(self, request: Request) -> Response:
        """Continue one or several prompts."""
        body, size = await self._parser.parse(request, CompletionRequest)
        card, extra = self._check(body)
        check_choices(len(body.prompt), body.n or 1, self._api)
        prompts = await self._off_loop.run(
            size, self._codec.encode_prompts, body.prompt, body.add_special_tokens
        )
        check_ids(sum(map(len, prompts)), CompletionFormat.prompt_field, self._api)
        made: dict[int, SamplingParams] = {}  # by max_tokens, as most prompts have the same
        params = []
        for prompt in prompts:
            field = CompletionFormat.prompt_field, len(prompt)
            most = max_tokens_of(body.given_max_tokens, DEFAULT_COMPLETION_TOKENS, field, card)
            if most not in made:
                made[most] = body.params(most, body.logprobs)
            params.append(made[most])
        return self._respond(CompletionFormat, body, request, prompts, params, extra)

    async def chat(self, request: Request) -> Response:
        """Make the next message of a conversation."""
        body, size = await self._parser.parse(request, ChatCompletionRequest)
        card, extra = self._check(body)
        check_choices(1, body.n or 1, self._api)
        prompt = await self._off_loop.run(
            size, self._codec.encode_chat, body.messages, body.options
        )
        check_ids(len(prompt), ChatFormat.prompt_field, self._api)
        field = ChatFormat.prompt_field, len(prompt)
        most = max_tokens_of(body.given_max_tokens, DEFAULT_CHAT_TOKENS, field, card)
        params = [body.params(most, body.wanted_logprobs)]
        return self._respond(ChatFormat, body, request, [prompt], params, extra)

    def _check(self, body: GenerationRequest) -> tuple[ModelCard, bytes]:
        """Return the model card and the fields for the executor."""
        self._check_model(body.model)
        card = self._state.require_model_card()
        extra = executor_fields(body, card)
        if body.stops and not self._codec.finds_stops:
            what = "stop: needs a tokenizer; stop_token_ids does not"
            raise Problem(400, what, param="stop", code="no_tokenizer")
        return card, extra

    def _respond(
        self,
        endpoint_format: type[CompletionFormat] | type[ChatFormat],
        body: GenerationRequest,
        request: Request,
        prompts: Sequence[Sequence[int]],
        params: Sequence[SamplingParams],
        extra: bytes,
    ) -> Response:
        request_id = body.request_id or _named(request) or secrets.token_hex(12)
        about = body.stream_options or StreamOptions()
        options = FormatOptions(
            prompts,
            params,
            with_usage=about.include_usage,
            each_usage=about.continuous_usage_stats,
            with_ids=body.return_token_ids,
            names_as_ids=body.return_tokens_as_token_ids,
            eos_token_ids=self._state.settings.topology.eos_token_ids,
        )
        made = endpoint_format(request_id, self._model, self._codec, options)
        stream = bool(body.stream)
        job = GenerationJob(request_id, prompts, params, extra, stream, about.include_usage)
        return GenerationResponse(self._state, made, self._codec, job)

    async def models(self) -> Response:
        """List the model that is served."""
        return JSONResponse({"object": "list", "data": [self._about_model()]})

    async def model(self, model: str) -> Response:
        """Describe the model that is served. Another name is a 404."""
        self._check_model(model)
        return JSONResponse(self._about_model())

    def _about_model(self) -> dict[str, Any]:
        card = self._state.model_card()
        return {
            "id": self._model,
            "object": "model",
            "created": 0,
            "owned_by": "tokenpipe",
            "max_model_len": None if card is None else card.max_model_len,
        }

    def _check_model(self, name: str | None) -> None:
        if name is not None and name != self._model:
            what = f"model: there is no {name!r}; this server has {self._model!r}"
            raise Problem(404, what, param="model", code="model_not_found")

    async def abort(self, request: Request) -> Response:
        """Abort the live requests of an id, in all workers; each gets its final output."""
        body, _ = await self._parser.parse(request, AbortRequest)
        aborted = 0
        for name in ids_of(body.request_id):
            aborted = aborted or await self._state.abort_socket.abort_everywhere(name)
        return JSONResponse({"aborted": aborted})

    async def health(self) -> Response:
        """Answer 200: this process lives."""
        return JSONResponse({"status": "ok"})

    async def ready(self) -> Response:
        """Answer 200 if every process is well, else 503 with the name of each that is not."""
        health = self._state.health()
        body = {
            "ready": not health.problems,
            "problems": dict(health.problems),
            "ranks_up": list(health.ranks_up),
            "running": health.running,
            "waiting": health.waiting,
        }
        return JSONResponse(body, 503 if health.problems else 200)


def _named(request: Request) -> str:
    """Return the id in the request's header. One that is too long is refused, not shortened."""
    name = request.headers.get("x-request-id", "")
    if len(name) > MAX_REQUEST_ID:
        what = f"x-request-id: {len(name)} characters, {MAX_REQUEST_ID} are the most"
        raise Problem(400, what, param="x-request-id")
    return name


def ids_of(shown: str) -> list[str]:
    """Return the ids of requests that a caller may mean: answers show an id with a prefix."""
    prefixes = (f"{made.id_prefix}-" for made in (CompletionFormat, ChatFormat))
    return [shown, *(shown[len(prefix) :] for prefix in prefixes if shown.startswith(prefix))]
