"""The application of one process: its lifespan, and its routes without an engine."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.pipeline_thread import pipeline
from tokenpipe.api.app import make_app
from tokenpipe.api.server_state import ServerState
from tokenpipe.api.settings import ApiSettings
from tokenpipe.errors import ConfigError, LaneLost
from tokenpipe.instance import ModelCard, write_model_card
from tokenpipe.notify import Notifier
from tokenpipe.topology import Topology


def state_of(endpoint: Path, patience_s: float = 20.0, **keys: Any) -> ServerState:
    deadline = time.monotonic() + patience_s
    settings = ApiSettings(Topology(**keys), str(endpoint), -1, True, deadline, Notifier(None))
    return ServerState(settings, "0")


class Owner:
    """Notes when it is entered and left."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def begins(self, server: object) -> None:
        raise AssertionError("the server calls it, the application does not")

    def __enter__(self) -> None:
        self.notes.append("enter")

    def __exit__(self, *_: object) -> None:
        self.notes.append("exit")


async def lifespan(app: Any, notes: list[str]) -> None:
    """Run the lifespan of an application as a server does, and note its messages."""
    left = ["lifespan.startup", "lifespan.shutdown"]

    async def receive() -> dict[str, str]:
        return {"type": left.pop(0)}

    async def send(message: dict[str, str]) -> None:
        notes.append(message["type"].removeprefix("lifespan."))

    await app({"type": "lifespan", "state": {}}, receive, send)


def test_the_lifespan_opens_and_closes_inside_of_its_owner(runtime_dir: Path) -> None:
    notes: list[str] = []
    with pipeline(runtime_dir) as endpoint:
        state = state_of(endpoint)
        asyncio.run(lifespan(make_app(state, Owner(notes)), notes))
    assert notes == ["enter", "startup.complete", "exit", "shutdown.complete"]
    assert state.failure is None


def test_a_start_that_fails_closes_and_keeps_why(tmp_path: Path) -> None:
    notes: list[str] = []
    state = state_of(tmp_path / "none", patience_s=-1.0)
    with pytest.raises(LaneLost, match="there is no instance"):
        asyncio.run(lifespan(make_app(state, Owner(notes)), notes))
    assert notes == ["enter", "exit", "startup.failed"]
    assert isinstance(state.failure, LaneLost)


def ask(state: ServerState, *calls: tuple[Any, ...]) -> list[httpx.Response]:
    """Return the answers to calls: method, path, a body as JSON or bytes, headers."""

    async def all_calls() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=make_app(state))
        async with httpx.AsyncClient(transport=transport, base_url="http://it") as client:
            answers = []
            for method, path, body, *headers in calls:
                content = body if body is None or type(body) is bytes else json.dumps(body)
                answers.append(
                    await client.request(method, path, content=content, headers=dict(*headers))
                )
            return answers

    return asyncio.run(all_calls())


def test_routes_without_an_engine(tmp_path: Path) -> None:
    state = state_of(tmp_path, api={"max_body_bytes": 1024})
    write_model_card(tmp_path, ModelCard((), 77))
    health, ready, models, completion, chat, wrong, large, nothing = ask(
        state,
        ("GET", "/health", None),
        ("GET", "/ready", None),
        ("GET", "/v1/models", None),
        ("POST", "/v1/completions", {"prompt": "x"}),
        ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("POST", "/v1/completions", {"prompt": "x", "n": 0}),
        ("POST", "/v1/completions", {"prompt": "x" * 1024}),
        ("GET", "/docs", None),
    )
    assert health.status_code == 200
    assert ready.status_code == 503 and set(ready.json()["problems"]) == {"engine 0", "api 0"}
    assert models.json()["data"][0]["max_model_len"] == 77
    for response in (completion, chat):
        assert response.status_code == 503 and response.headers["retry-after"] == "1"
        assert response.json()["error"]["type"] == "service_unavailable"
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "n"
    assert (large.status_code, nothing.status_code) == (413, 404)


@pytest.mark.case("F39")
def test_a_model_by_its_name_and_heads_without_bodies(tmp_path: Path) -> None:
    name = "org/model-7b"
    state = state_of(tmp_path, api={"model": name})
    found, escaped, other, head, ready = ask(
        state,
        ("GET", f"/v1/models/{name}", None),
        ("GET", "/v1/models/org%2Fmodel-7b", None),
        ("GET", "/v1/models/org", None),
        ("HEAD", "/health", None),
        ("HEAD", "/ready", None),
    )
    assert found.status_code == escaped.status_code == 200
    assert found.json()["id"] == escaped.json()["id"] == name
    assert other.status_code == 404 and other.json()["error"]["code"] == "model_not_found"
    assert (head.status_code, ready.status_code) == (200, 503)


@pytest.mark.case("F39")
def test_web_pages_of_allowed_origins_may_call(tmp_path: Path) -> None:
    def preflight(origin: str, **api: Any) -> httpx.Response:
        asked = {"origin": origin, "access-control-request-method": "POST"}
        asked["access-control-request-headers"] = "authorization, content-type"
        (answer,) = ask(state_of(tmp_path, api=api), ("OPTIONS", "/v1/completions", None, asked))
        return answer

    allowed = preflight("https://it", allowed_origins=["https://it"])
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "https://it"
    assert "POST" in allowed.headers["access-control-allow-methods"]
    assert "authorization" in allowed.headers["access-control-allow-headers"]
    assert preflight("https://other", allowed_origins=["https://it"]).status_code == 400
    assert preflight("https://other", allowed_origins=["*"]).status_code == 200
    assert preflight("https://it").status_code == 405
    state = state_of(tmp_path, api={"allowed_origins": ["https://it"]})
    (health,) = ask(state, ("GET", "/health", None, {"origin": "https://it"}))
    assert health.headers["access-control-allow-origin"] == "https://it"


@pytest.mark.case("F30")
def test_each_answer_names_its_request(tmp_path: Path) -> None:
    given = {"x-request-id": "mine"}
    for method, path in (("GET", "/health"), ("GET", "/none"), ("POST", "/v1/completions")):
        (answer,) = ask(state_of(tmp_path), (method, path, {}, given))
        assert answer.headers["x-request-id"] == "mine"


@pytest.mark.case("F30")
def test_a_body_needs_no_content_type_and_an_error_shows_its_text(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    write_model_card(tmp_path, ModelCard((), None))
    for kind in (None, "application/x-www-form-urlencoded"):
        headers = {"content-type": kind} if kind else {}
        raw = '{"prompt": "x", "model": "日本"}'.encode()
        (answer,) = ask(state, ("POST", "/v1/completions", raw, headers))
        assert answer.status_code == 404 and "there is no '日本'".encode() in answer.content


def test_a_tokenizer_that_cannot_be_read_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match="tokenizer"):
        make_app(state_of(tmp_path, tokenizer=tmp_path / "tokenizer.json"))


@pytest.mark.case("F36")
def test_whatever_escapes_is_a_500_in_openais_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: object) -> None:
        raise LookupError("/a/path")

    state = state_of(tmp_path)
    monkeypatch.setattr(ServerState, "require_model_card", fail)

    async def call() -> httpx.Response:
        transport = httpx.ASGITransport(app=make_app(state), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://it") as client:
            return await client.post("/v1/completions", json={"prompt": "x"})

    answer = asyncio.run(call())
    assert answer.status_code == 500
    assert answer.json()["error"] == {
        "message": "the server failed: LookupError",
        "type": "server_error",
        "param": None,
        "code": "internal",
    }
