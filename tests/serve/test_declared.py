"""What an executor says of itself and of its requests, as the official client meets it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.conftest import eventually
from tests.serve.running import NotStarted, Running
from tokenpipe import AsyncClient, SamplingParams

ENGINE = ("--engine", "tests.serve.declaring:Declaring")
LENGTH = 40
WORDS = "größer als 64 KiB\nund mehr"


def declaring(directory: Path, base: Path, *more: str, **keys: Any) -> Running:
    (directory / "length").write_text(str(LENGTH))
    arguments = ("--engine-arg", f"lengths={directory / 'length'}", *more)
    return Running(directory, base, *ENGINE, *arguments, slots_per_rank=4, vocab_size=256, **keys)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="tp-") as base:
        directory = tmp_path_factory.mktemp("declared")
        with declaring(directory, Path(base), api={"workers": 2}) as running:
            yield running


@pytest.mark.case("F28")
def test_no_command_line_of_a_child_has_the_arguments(server: Running) -> None:
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in server.pids()]
    assert len(lines) >= 5 and not any(b"length" in line for line in lines), lines


def refused(server: Running, stream: bool = False, **body: Any) -> openai.APIStatusError:
    """Ask, and return the error that comes instead of an answer."""
    asked: dict[str, Any] = {"prompt": [1, 2], "max_tokens": 3, "model": "tokenpipe"}
    own = {name: body.pop(name) for name in ("lora", "mystery", "echo") if name in body}
    with server.client() as client, pytest.raises(openai.APIStatusError) as caught:
        client.completions.create(**asked | body, stream=stream, extra_body=own)
    return caught.value


def max_model_len(server: Running) -> Any:
    with server.client() as client:
        (model,) = client.models.list().data
    return model.max_model_len  # type: ignore[attr-defined]


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_a_400_with_its_text_before_anything_is_sent(
    server: Running, stream: bool
) -> None:
    error = refused(server, stream, lora={"refuse": WORDS})
    assert isinstance(error, openai.BadRequestError)
    assert error.body == {
        "message": WORDS, "type": "invalid_request_error", "param": None, "code": "invalid",
    }  # fmt: skip
    error = refused(server, stream, lora={"refuse": "no such adapter", "field": "lora"})
    assert (error.status_code, error.param) == (400, "lora")
    assert error.body["message"] == "lora: no such adapter"  # type: ignore[index]
    error = refused(server, stream, lora={"refuse": "odd", "field": "prompt_token_ids"})
    assert (error.status_code, error.param) == (400, "prompt")
    assert eventually(server.idle)


def test_another_exception_is_a_500_with_its_text(server: Running) -> None:
    error = refused(server, lora={"fail": "weights"})
    assert isinstance(error, openai.InternalServerError) and error.code == "internal"
    assert "the worker failed on this row: KeyError: 'weights'" in error.message


def test_declared_fields_reach_the_executor_as_json(server: Running) -> None:
    bias = {"5": -100.0, "größe": [None, True]}
    body = {"prompt": [[1], [2]], "n": 2, "lora": "echo", "logit_bias": bias, "user": "me"}
    said = server.post("/v1/completions", body)
    assert said.status_code == 400
    assert json.loads(said.json()["error"]["message"]) == {"lora": "echo", "logit_bias": bias}
    body = {"prompt": [1], "lora": "echo", "logit_bias": None}  # null is absent
    assert json.loads(server.post("/v1/completions", body).json()["error"]["message"]) == {
        "lora": "echo"
    }


def test_a_field_that_nobody_serves_is_refused_by_name(server: Running) -> None:
    error = refused(server, echo=True)
    assert (error.status_code, error.param, error.code) == (400, "echo", "unsupported")
    body = {"prompt": [1], "max_tokens": 1, "mystery": 1}
    assert server.post("/v1/completions", body).status_code == 200  # ignored, as ever


def test_the_length_of_the_model_bounds_prompt_and_output(server: Running) -> None:
    assert max_model_len(server) == LENGTH
    error = refused(server, prompt=[1] * 30, max_tokens=11)
    assert (error.status_code, error.param, error.code) == (
        400, "max_tokens", "context_length_exceeded",
    )  # fmt: skip
    error = refused(server, prompt=[1] * LENGTH, max_tokens=1)
    assert (error.param, error.code) == ("prompt", "context_length_exceeded")
    with server.client() as client:
        asked: dict[str, Any] = {"model": "tokenpipe"}
        exact = client.completions.create(prompt=[1] * 30, max_tokens=10, **asked)
        default = client.completions.create(prompt=[[1] * 30, [1] * 38, [1]], **asked)
    assert exact.usage is not None and exact.usage.completion_tokens == 10
    assert [len(choice.text.split()) for choice in default.choices] == [10, 2, 16]


def test_a_client_of_its_own_gets_the_reason_too(server: Running) -> None:
    """One that attaches to the instance, and whose extra is what an API server would write."""

    async def ask() -> Any:
        async with AsyncClient(endpoint) as client:
            extra = b'{"lora": {"refuse": "not today", "field": "lora"}}'
            return [o async for o in client.generate([1], SamplingParams(), extra=extra)]

    (endpoint,) = (path.parent for path in server.runtime_dir.glob("*/instance.json"))
    (output,) = asyncio.run(ask())
    assert (output.error, output.error_field) == ("lora: not today", "lora")
    assert output.error_code == 1


def test_a_restarted_worker_changes_the_card(tmp_path: Path, runtime_dir: Path) -> None:
    with declaring(tmp_path, runtime_dir) as server:
        body = {"prompt": [1] * 50, "max_tokens": 1}
        assert server.post("/v1/completions", body).status_code == 400
        (tmp_path / "length").write_text("60")
        os.kill(server.pid("tp:worker"), signal.SIGKILL)
        assert eventually(lambda: server.post("/v1/completions", body).status_code == 200, 20.0)
        assert max_model_len(server) == 60


def test_the_first_tensor_parallel_rank_decides(tmp_path: Path, runtime_dir: Path) -> None:
    with declaring(tmp_path, runtime_dir, tensor_parallel_size=2) as server:
        body = {"prompt": [1], "max_tokens": 2}
        for order, status in (({"only_tp": 0}, 400), ({"only_tp": 1}, 200), ({}, 400)):
            lora = {"refuse": "no", **order}
            assert server.post("/v1/completions", {**body, "lora": lora}).status_code == status
        assert eventually(server.idle)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--engine-arg", "by_rank=true"), ("worker 0.0: ", "worker 1.0: ", "max_model_len 41")),
        (("--engine-arg", 'fields=["top_p"]'), ("worker", "top_p: a standard field")),
    ],
)
def test_a_wrong_declaration_is_an_error_at_the_start(
    tmp_path: Path, runtime_dir: Path, more: tuple[str, ...], said: tuple[str, ...]
) -> None:
    with pytest.raises(NotStarted) as caught:
        declaring(tmp_path, runtime_dir, *more, data_parallel_size=2)
    output = str(caught.value)
    assert "exit status 3" in output and all(part in output for part in said), output
