"""One call, however large, neither stalls nor starves the others: a server beside 100 streams."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import eventually
from tests.postprocess.vocab import real
from tests.serve.beside import stream_beside
from tests.serve.running import Running

STREAMS = 100
STREAM: dict[str, Any] = {"prompt": [1, 2, 3], "max_tokens": 60, "seed": 7}
PATIENCE_S = 60.0
ENGINE = ("--engine", "tests.serve.prompted:Prompted", "--engine-arg", "rate=20")


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("bounded")
    with tempfile.TemporaryDirectory(prefix="tp-") as base:
        keys: dict[str, Any] = {"slots_per_rank": 256, "api": {"max_choices": 4096}}
        with Running(directory, Path(base), *ENGINE, **keys) as running:
            yield running


def post(server: Running, raw: bytes) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/completions", content=raw, timeout=PATIENCE_S, verify=False)


def body_of(prompt: str, more: str = "") -> bytes:
    return f'{{"prompt":{prompt},"max_tokens":1{more}}}'.encode()


@pytest.mark.case("F05")
@pytest.mark.parametrize(
    ("raw", "status", "param"),
    [
        (body_of("[" + '"a",' * 99_999 + '"a"]'), 400, "prompt"),
        (body_of("[" + "[1]," * 99_999 + "[1]]"), 400, "prompt"),
        (body_of("[[1],[2]]", ',"n":4000'), 400, "n"),
        (body_of("[" + "[1]," * 99 + "[1]]", ',"n":128'), 400, "n"),
        (body_of("[" + "12," * 4_600_000 + "12]"), 413, None),
        (body_of("[" + "12," * 1_050_000 + "12]"), 400, "prompt"),
        (body_of("[" + "-1," * 1_000_000 + "-1]"), 400, "prompt"),
        (body_of("[" + '"a",' * 1_000_000 + "1]"), 400, "prompt"),
        (body_of('"x"', ',"stop_token_ids":[' + "-1," * 900_000 + "-1]"), 400, "stop_token_ids"),
        (body_of('"x"', ',"stop":[' + "[]," * 400_000 + "[]]"), 400, "stop"),
        (body_of('"x"', ',"mystery":[' + "[]," * 5_000_000 + "[]]"), 413, None),
        (body_of('"x"', ',"mystery":' + "[" * 900_000 + "]" * 900_000), 400, None),
        (body_of("[" + "[" * 900_000 + "]" * 900_000 + "]"), 400, None),
    ],
    ids=lambda value: "body" if isinstance(value, bytes) else str(value),
)
def test_a_call_that_is_too_large_is_refused_at_once(
    bounded: Running, raw: bytes, status: int, param: str | None
) -> None:
    began = time.monotonic()
    answer = post(bounded, raw)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text
    assert len(answer.text) < 1000
    assert time.monotonic() - began < 5.0  # it was a minute


@pytest.mark.case("F07")
@pytest.mark.parametrize(
    ("more", "param"),
    [(',"prompt_logprobs":20', "prompt_logprobs"), (',"n":128', "n")],
)
def test_what_no_frame_holds_is_refused_by_field(bounded: Running, more: str, param: str) -> None:
    answer = post(bounded, body_of(str(list(range(100_000))), more))
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert error["message"].endswith("bounds.max_frame_bytes is 16777216")
    assert eventually(bounded.idle, 5.0)


@pytest.mark.case("F05")
def test_a_hundred_streams_stay_whole_beside_the_largest_bodies(bounded: Running) -> None:
    alone = bounded.post("/v1/completions", STREAM).json()["choices"][0]["text"]
    answers: list[httpx.Response] = []

    def call() -> None:
        answers.append(post(bounded, body_of("[" + '"a",' * 99_999 + '"a"]')))
        answers.append(post(bounded, body_of("[" + "[1]," * 4_095 + "[1]]")))

    beside = stream_beside(bounded, STREAM, STREAMS, call)
    refused, served = answers
    assert refused.status_code == 400 and "100000 prompts" in refused.json()["error"]["message"]
    assert [c["index"] for c in served.json()["choices"]] == list(range(4096))
    assert beside.texts == [alone] * STREAMS
    assert beside.p99 <= 1.0
    assert eventually(bounded.idle, 5.0)


@pytest.mark.case("F05")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_streams_go_on_beside_the_largest_answers(bounded: Running, stream: bool) -> None:
    alone = bounded.post("/v1/completions", STREAM).json()["choices"][0]["text"]
    prompt, k = list(range(20_000)), 20
    asked: dict[str, Any] = {"prompt": prompt, "max_tokens": 1, "prompt_logprobs": k}
    if stream:
        more = {"stream_interval": 3000, "logprobs": k, "stream": True}
        asked = {"prompt": [1], "max_tokens": 60, **more}
    answers: list[httpx.Response] = []

    def call() -> None:
        answers.append(bounded.post("/v1/completions", asked))

    beside = stream_beside(bounded, STREAM, STREAMS, call)
    assert answers[0].status_code == 200
    if not stream:
        found = answers[0].json()["choices"][0]["prompt_logprobs"]
        assert found[0] is None and len(found) == len(prompt)
        assert all(str(token) in entry for token, entry in enumerate(found) if entry)
    assert beside.texts == [alone] * STREAMS
    assert max(beside.gaps) <= 1.0


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with a tokenizer and a chat template."""
    directory = tmp_path_factory.mktemp("reading")
    path = directory / "tokenizer.json"
    real("gpt2_style").tokenizer.save(str(path))
    path.with_name("chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    with tempfile.TemporaryDirectory(prefix="tp-") as base:
        keys: dict[str, Any] = {"slots_per_rank": 256, "tokenizer": str(path)}
        with Running(directory, Path(base), *ENGINE, **keys) as running:
            yield running


@pytest.mark.case("F37")
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_the_streams_go_on_beside_the_longest_prompt(reading: Running, path: str) -> None:
    alone = reading.post("/v1/completions", STREAM).json()["choices"][0]["text"]
    text = "The quick brown fox jumps over it, and again. " * 50_000  # 2.3 MB: 2 s of a core
    body: dict[str, Any] = {"prompt": text, "max_tokens": 1}
    if path.endswith("chat/completions"):
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 1}
    answers: list[httpx.Response] = []

    def call() -> None:
        answers.append(reading.post(path, body))

    beside = stream_beside(reading, STREAM, STREAMS, call)
    assert answers[0].json()["usage"]["prompt_tokens"] > 900_000
    assert beside.texts == [alone] * STREAMS
    assert max(beside.gaps) <= 1.0
