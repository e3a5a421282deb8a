"""Make the ASGI application of one process of the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from .body_limit import BodyLimit
from .endpoints import Endpoints
from .error_handlers import add_error_handlers
from .owner import ServerOwner
from .request_id import RequestIdEcho
from .server_state import ServerState
from .text_codec import text_codec_of


def make_app(state: ServerState, owner: ServerOwner | None = None) -> Any:
    """Return the application. Its lifespan enters `owner`, then opens and closes `state`.

    Raises ConfigError for a tokenizer or a chat template that cannot be read.
    """

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
    topology = state.settings.topology
    endpoints = Endpoints(state, text_codec_of(topology, state.settings.plain_text))
    for method, path, endpoint in (
        ("POST", "/v1/completions", endpoints.completions),
        ("POST", "/v1/chat/completions", endpoints.chat),
        ("GET", "/v1/models", endpoints.models),
        ("GET", "/v1/models/{model:path}", endpoints.model),
        ("POST", "/v1/abort", endpoints.abort),
        ("GET", "/health", endpoints.health),
        ("GET", "/ready", endpoints.ready),
    ):
        methods = ["GET", "HEAD"] if method == "GET" else [method]
        app.add_api_route(path, endpoint, methods=methods, response_model=None)
    add_error_handlers(app)
    limited: Any = BodyLimit(app, topology.api.max_body_bytes)
    origins = topology.api.allowed_origins
    if origins:
        allowed: Any = {"allow_methods": ["*"], "allow_headers": ["*"]}
        allowed["expose_headers"] = ["x-request-id", "retry-after"]
        limited = CORSMiddleware(limited, allow_origins=origins, **allowed)
    return RequestIdEcho(limited)
