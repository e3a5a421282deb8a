"""Every end, streamed and whole, one sample and two, one prompt and two, with intervals: one finish
reason a choice, in its last chunk, and the same usage in both modes.
"""

from __future__ import annotations

import itertools
import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import openai
import pytest

from tests.conftest import eventually
from tests.postprocess.vocab import real
from tests.serve.caller import Caller
from tests.serve.running import Running
from tests.serve.scripted import CACHED, ENDS, EOS_ID, LAST, LETTERS, REASONING, ROW
from tokenpipe import Client, FinishReason, SamplingParams

PROMPT = [1, 2, 3]
TEXT = "abcdefghijk"
REASONS = {"abort": "abort", "length": "length"}  # the others stop
STOP_REASONS = {"stop id": LETTERS[LAST], "stop string": "jk"}
TEXTS = {"length": TEXT, "stop string": TEXT[:-2], "abort": TEXT[: 3 * ROW]}
PARAMS: dict[str, dict[str, Any]] = {
    "eos": {},
    "stop id": {"stop_token_ids": [LETTERS[LAST]]},
    "stop string": {"stop": ["never", "jk"]},
    "length": {"max_tokens": LAST + 1},
    "abort": {},
    "error": {},
}


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tp-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def scripted(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("ends")
    tokenizer = directory / "tokenizer.json"
    real("gpt2_style").tokenizer.save(str(tokenizer))
    keys: dict[str, Any] = {"tokenizer": str(tokenizer), "eos_token_ids": [EOS_ID]}
    engine = ("--engine", "tests.serve.scripted:Scripted")
    with Running(directory, base, *engine, slots_per_rank=8, **keys) as running:
        yield running


@dataclass
class Told:
    """What was told of one choice."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)  # tokens in each
    reasons: list[str | None] = field(default_factory=list)  # one a chunk
    stop_reason: Any = None

    def add(self, choice: Any) -> None:
        self.text += choice.text
        self.token_ids += choice.token_ids
        self.chunks.append(len(choice.token_ids))
        self.reasons.append(choice.finish_reason)
        self.stop_reason = getattr(choice, "stop_reason", None)


class Answer:
    """One request by the official client; an abort is sent once all of it that comes has come."""

    def __init__(self, server: Running, asked: dict[str, Any], stream: bool, abort: bool) -> None:
        self.choices: dict[int, Told] = {}
        self.usage: Any = None
        self.error = ""
        self._server, self._asked = server, asked
        self._abort = threading.Event() if abort else None
        self._stream = stream
        try:
            with server.client() as client:
                self._ask(client)
        except openai.APIError as error:
            self.error = error.message

    def _ask(self, client: openai.OpenAI) -> None:
        if not self._stream:
            waiting = threading.Thread(target=self._abort_once_it_is_there)
            if self._abort is not None:
                waiting.start()
            whole = client.completions.create(**self._asked)
            for choice in whole.choices:
                self._of(choice.index).add(choice)
            self.usage = whole.usage
            if self._abort is not None:
                waiting.join()
            return
        options: Any = {"include_usage": True}
        for chunk in client.completions.create(**self._asked, stream=True, stream_options=options):
            if chunk.usage is not None:
                assert not chunk.choices and self.usage is None
                self.usage = chunk.usage
            for choice in chunk.choices:
                self._of(choice.index).add(choice)
            if self._abort is not None and not self._abort.is_set() and self._all_began():
                self._abort.set()
                assert self._send_abort() > 0

    def _of(self, index: int) -> Told:
        return self.choices.setdefault(index, Told())

    def _all_began(self) -> bool:
        return len(self.choices) == int(len(self._asked["prompt"]) * self._asked["n"])

    def _abort_once_it_is_there(self) -> None:
        assert eventually(lambda: self._send_abort() > 0)

    def _send_abort(self) -> int:
        sent = {"request_id": self._asked["extra_body"]["request_id"]}
        return int(self._server.post("/v1/abort", sent).json()["aborted"])


numbers = itertools.count()


def ask(server: Running, end: str, stream: bool, n: int, prompts: int, interval: int) -> Answer:
    params = {"max_tokens": 100, **PARAMS[end]}
    more: dict[str, Any] = {"return_token_ids": True, "stream_interval": interval}
    more |= {"request_id": f"ask-{next(numbers)}"}
    if "stop_token_ids" in params:
        more["stop_token_ids"] = params.pop("stop_token_ids")
    prompt = [[ENDS.index(end), 7 + i, 9] for i in range(prompts)]
    asked = {"model": "tokenpipe", "prompt": prompt, "n": n, "extra_body": more, **params}
    return Answer(server, asked, stream, end == "abort")


@pytest.mark.case("B67")
@pytest.mark.parametrize("interval", [1, 5])
@pytest.mark.parametrize("prompts", [1, 2])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("end", ENDS)
def test_one_reason_and_the_usage(
    scripted: Running, end: str, stream: bool, n: int, prompts: int, interval: int
) -> None:
    answer = ask(scripted, end, stream, n, prompts, interval)
    choices = answer.choices
    if end == "error":  # OpenAI's form has no such reason: the answer is an error, or ends with one
        assert "the worker failed on this row" in answer.error and answer.usage is None
        assert stream or not choices
        for told in choices.values():
            assert set(told.reasons) == {None} and TEXT.startswith(told.text)
        return
    assert not answer.error
    assert sorted(choices) == list(range(n * prompts))
    for told in choices.values():
        assert told.reasons[-1] == REASONS.get(end, "stop")
        assert set(told.reasons[:-1]) <= {None}
        assert told.stop_reason == STOP_REASONS.get(end)
        whole = [*LETTERS[:LAST], EOS_ID if end == "eos" else LETTERS[LAST]]
        text = TEXTS.get(end, TEXT[:-1])
        if end == "abort":
            assert whole[: len(told.token_ids)] == told.token_ids and text.startswith(told.text)
        else:
            assert (told.token_ids, told.text) == (whole, text)
        if stream:
            assert max(told.chunks) >= ROW  # not every chunk is a token
            assert all(count >= interval for count in told.chunks[1:-1])
    usage = answer.usage
    counted = sum(len(told.token_ids) for told in choices.values())
    assert usage.completion_tokens == counted
    assert usage.prompt_tokens == 3 * prompts
    assert usage.total_tokens == 3 * prompts + counted
    if end != "abort" or stream:  # one that began: its first row says what the engine's cache had
        assert usage.prompt_tokens_details.cached_tokens == CACHED * prompts
    if end != "abort":
        assert counted == n * prompts * (LAST + 1)
        assert usage.completion_tokens_details.reasoning_tokens == REASONING * n * prompts


def test_prompt_logprobs_in_the_shape_of_vllm(scripted: Running) -> None:
    asked: dict[str, Any] = {"prompt": [ENDS.index("length"), 300, 301], "max_tokens": 2}
    body = {**asked, "n": 2, "prompt_logprobs": 1}
    answer = scripted.post("/v1/completions", body).json()
    name = real("gpt2_style").tokenizer.decode

    def entry(logprob: float, rank: int, token: int) -> dict[str, Any]:
        return {"logprob": logprob, "rank": rank, "decoded_token": name([token])}

    for choice in answer["choices"]:
        assert choice["prompt_logprobs"] == [
            None,
            {"300": entry(-9999.0, 4, 300), "0": entry(-1.5, 1, 0) | {"decoded_token": ANY}},
            {"301": entry(-1.5, 4, 301), "0": entry(-1.5, 1, 0) | {"decoded_token": ANY}},
        ]
    refused = scripted.post("/v1/completions", {**body, "stream": True})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "prompt_logprobs"
    plain = scripted.post("/v1/completions", asked).json()
    assert "prompt_logprobs" not in plain["choices"][0]


@pytest.mark.case("B67")
@pytest.mark.parametrize("interval", [1, 5])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("end", ENDS)
def test_one_reason_and_the_usage_at_a_client(
    scripted: Running, base: Path, end: str, n: int, interval: int
) -> None:
    """The same below HTTP, where an error is a reason too."""
    params = {"max_tokens": 100, **PARAMS[end]}
    params = {k: tuple(v) if isinstance(v, list) else v for k, v in params.items()}
    asked = SamplingParams(**params, n=n, stream_interval=interval)
    (endpoint,) = base.iterdir()
    with Client(endpoint) as client:
        told: dict[int, list[Any]] = {}
        for output in client.generate([ENDS.index(end), 7, 9], asked, request_id="below"):
            told.setdefault(output.index, []).append(output)
            if end == "abort" and len(told) == n:
                client.abort("below")
    assert sorted(told) == list(range(n))
    for outputs in told.values():
        *before, last = outputs
        assert {output.finish_reason for output in before} <= {None}
        expected = {"error": FinishReason.ERROR, "abort": FinishReason.ABORT}
        expected["length"] = FinishReason.LENGTH
        assert last.finish_reason == expected.get(end, FinishReason.STOP)
        assert {output.usage for output in before} <= {None}
        tokens = sum(len(output.token_ids) for output in outputs)
        assert last.usage.completion_tokens == tokens
        assert end == "abort" or tokens == (3 * ROW if end == "error" else LAST + 1)
        assert last.usage.prompt_tokens == 3 and last.usage.cached_tokens == CACHED
        assert last.usage.reasoning_tokens == min(REASONING, tokens)
        assert (last.error is not None) == (end == "error")


def send(server: Running, path: str, body: Any) -> socket.socket:
    """Send a call and read nothing."""
    host, port = server.url.removeprefix("http://").split(":")
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n"
    sock = socket.create_connection((host, int(port)), timeout=10)
    sock.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + raw)
    return sock


@pytest.mark.case("B40")
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("when", ["mid-stream", "whole", "queued"])
def test_who_leaves_frees_the_slot(server: Running, path: str, when: str) -> None:
    body: dict[str, Any] = {"max_tokens": 1_000_000, "stream": when != "whole"}
    if path.endswith("chat/completions"):
        body["messages"] = [{"role": "user", "content": "x"}]
    else:
        body["prompt"] = PROMPT
    count = 11 if when == "queued" else 3  # of 8 slots
    callers = [send(server, path, body) for _ in range(count)]
    full = {"running": min(count, 8), "waiting": max(0, count - 8)}
    assert eventually(lambda: full.items() <= server.ready().items()), server.ready()
    if when == "mid-stream":
        assert all(sock.recv(1) for sock in callers)
    for sock in callers:
        sock.close()
    assert eventually(server.idle, 2.0), server.ready()
    assert server.post("/v1/completions", {"prompt": PROMPT}).status_code == 200


@pytest.mark.case("B40")
def test_leaving_before_the_first_token(server: Running) -> None:
    """The connection is closed right behind the call: between dispatch and admission."""
    for _ in range(20):
        send(server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 1_000_000}).close()
    assert eventually(server.idle, 5.0), server.ready()


def test_slow_reader_is_bounded_and_ended_alone(tmp_path: Path, runtime_dir: Path) -> None:
    keys: dict[str, Any] = {
        "bounds": {"stream_bytes": 65_536},
        "api": {"timeout_send": 2.0},
        "timeouts": {"stuck_s": 60.0},
    }
    arguments = ("--engine-arg", "rate=100", "--engine-arg", "tokens_per_row=2000")
    with Running(tmp_path, runtime_dir, *arguments, **keys) as server:
        host, port = server.url.removeprefix("http://").split(":")
        body = b'{"prompt":[1],"max_tokens":100000000,"stream":true}'
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((host, int(port)))
        with slow:
            slow.sendall(
                b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                b"content-length: %d\r\n\r\n%s" % (len(body), body)
            )
            assert eventually(lambda: server.ready()["running"] == 1)
            other = Caller(server, 50_000)
            assert eventually(server.idle, 30.0), server.ready()  # its slot is free
            other.join(20)
            assert (other.tokens, other.done) == (50_000, True)
            log = tmp_path / "logs" / "api-0.log"
            assert eventually(lambda: "read nothing for 2 s" in log.read_text())
