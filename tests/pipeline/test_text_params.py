"""Text from a worker's tokens to a client's outputs, with everything real between."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.test_pipeline import open_publisher, pick, serve_until
from tests.postprocess.vocab import real
from tokenpipe import (
    Aborted,
    Client,
    ConfigError,
    Event,
    Finished,
    FinishReason,
    Pipeline,
    Publisher,
    RankUp,
    Released,
    Request,
    RequestOutput,
    RequestOutputKind,
    Rescheduled,
    SamplingParams,
    StartupError,
    Submitted,
    Topology,
    Usage,
)

VOCABULARY = real("gpt2_style")


def ids(text: str) -> list[int]:
    """One token a byte."""
    return [VOCABULARY.words[bytes([b])] for b in text.encode()]


class Asking(threading.Thread):
    """A client that asks for one request and keeps its outputs."""

    def __init__(self, endpoint: str, params: SamplingParams, prompt: list[int]) -> None:
        super().__init__()
        self.endpoint, self.params, self.prompt = endpoint, params, prompt
        self.outputs: list[RequestOutput] = []
        self.start()

    def run(self) -> None:
        with Client(self.endpoint) as client:
            self.outputs += client.generate(self.prompt, self.params, request_id="a")

    @property
    def text(self) -> str:
        return "".join(output.text for output in self.outputs)


class Served:
    """A pipeline with one rank, whose worker is the test."""

    def __init__(self, pipe: Pipeline) -> None:
        self.pipe = pipe
        self.pub: Publisher = open_publisher(pipe)
        self.step = 0
        serve_until(pipe, lambda seen: bool(pick(seen, RankUp)), self.pub)

    def ask(self, prompt: str = "", **params: object) -> tuple[Asking, Request]:
        given: dict[str, object] = {"max_tokens": 100, **params}
        asking = Asking(self.pipe.endpoint, SamplingParams(**given), ids(prompt))  # type: ignore[arg-type]
        return asking, self.until(Submitted).request

    def until(self, kind: type[Event]) -> Any:
        """Serve until an event of that kind comes, and return it."""
        (found,) = pick(serve_until(self.pipe, lambda s: bool(pick(s, kind)), self.pub), kind)
        return found

    def join(self, asking: Asking) -> None:
        while asking.is_alive():
            self.pipe.wait(0.02)

    def close(self) -> None:
        closing = threading.Thread(target=self.pub.close)
        closing.start()
        while closing.is_alive():
            self.pipe.wait(0.02)
            self.pipe.poll()  # else what waits to be read ends each wait at once

    def bind(self, request: Request, slot: int, cached_tokens: int = 0) -> int:
        with self.pipe.commands() as cmd:
            return cmd.bind(request, slot=slot, cached_tokens=cached_tokens)

    def publish(self, handle: int, text: str, drained: bool = False) -> None:
        self.step += 1
        tokens = ids(text)
        counts = [len(tokens)] if tokens else []
        self.pub.publish(
            self.step, [handle] if tokens else [], tokens, counts=counts,
            drained=[handle] if drained else [],
        )  # fmt: skip


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    VOCABULARY.tokenizer.save(str(path))
    return path


@pytest.fixture(params=["process", "inline"])
def served(request: pytest.FixtureRequest, runtime_dir: Path, tokenizer: Path) -> Iterator[Served]:
    mode = {"mode": request.param}
    topology = Topology(runtime_dir=runtime_dir, tokenizer=tokenizer, processors=mode)
    with Pipeline(topology) as pipe:
        served = Served(pipe)
        yield served
        served.close()


@pytest.mark.case("B55")
def test_a_stop_across_a_preemption_frees_its_slot(served: Served) -> None:
    asking, request = served.ask("x", stop=("END-OF-LIST", "nothing"))
    first = served.bind(request, 3)
    served.publish(first, "one, two €END")
    with served.pipe.commands() as cmd:
        cmd.preempt(first)
    served.publish(first, "-OF", drained=True)
    rescheduled = served.until(Rescheduled)
    assert rescheduled.output_token_ids == ids("one, two €END-OF")
    second = served.bind(request, 0)
    served.publish(second, "-LIST and what the worker made meanwhile")
    finished = served.until(Finished)
    total = len(ids("one, two €END-OF-LIST"))
    assert (finished.finish_reason, finished.stop_reason) == (FinishReason.STOP, "END-OF-LIST")
    assert finished.output_tokens == total
    served.join(asking)
    assert asking.text == "one, two €"
    last = asking.outputs[-1]
    assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, "END-OF-LIST")
    assert last.usage is not None and last.usage.completion_tokens == total
    assert [t for out in asking.outputs for t in out.token_ids] == ids("one, two €END-OF-LIST")
    served.publish(second, "", drained=True)
    served.until(Released)


@pytest.mark.case("B67")
@pytest.mark.parametrize("kind", list(RequestOutputKind))
@pytest.mark.parametrize("interval", [1, 5])
def test_every_kind_of_output_says_the_same(
    served: Served, kind: RequestOutputKind, interval: int
) -> None:
    asking, request = served.ask("abc", output_kind=kind, stream_interval=interval, max_tokens=9)
    handle = served.bind(request, 0, cached_tokens=2)
    for part in ("gr", "\u00fc", "n", "e E", "ule", " and"):
        served.publish(handle, part)
    finished = served.until(Finished)
    served.join(asking)
    outputs = asking.outputs
    assert [out.finish_reason for out in outputs[:-1]] == [None] * (len(outputs) - 1)
    last = outputs[-1]
    assert last.finish_reason == finished.finish_reason == FinishReason.LENGTH
    assert last.usage is not None
    assert last.usage == Usage(prompt_tokens=3, completion_tokens=9, cached_tokens=2)
    if kind == RequestOutputKind.DELTA:
        assert asking.text == "gr\u00fcne Eu"
        assert [t for out in outputs for t in out.token_ids] == ids("gr\u00fcne Eu")
    else:
        assert last.text == "gr\u00fcne Eu"
        assert last.token_ids == ids("gr\u00fcne Eu")
        assert {out.offset for out in outputs} == {0}
        for before, after in pairwise(outputs):
            assert after.text.startswith(before.text)
            assert len(after.token_ids) >= len(before.token_ids)
    if kind == RequestOutputKind.FINAL_ONLY:
        assert len(outputs) == 1
    served.publish(handle, "", drained=True)
    served.until(Released)


def test_text_that_was_held_back_comes_where_an_unbound_request_is_aborted(served: Served) -> None:
    asking, request = served.ask("x", stop=("END-OF-LIST",))
    handle = served.bind(request, 1)
    served.publish(handle, "so END")
    with served.pipe.commands() as cmd:
        cmd.preempt(handle)
    served.publish(handle, "", drained=True)
    served.until(Rescheduled)
    with served.pipe.commands() as cmd:
        cmd.abort(request)
    served.until(Aborted)
    served.join(asking)
    assert asking.text == "so END"
    assert asking.outputs[-1].finish_reason == FinishReason.ABORT


def test_a_prompt_primes_the_text(served: Served) -> None:
    euro = "\u20ac".encode()
    prompt = [VOCABULARY.words[bytes([b])] for b in (ord("x"), *euro[:2])]
    asking = Asking(served.pipe.endpoint, SamplingParams(max_tokens=2), prompt)
    handle = served.bind(served.until(Submitted).request, 0)
    served.pub.publish(1, [handle], [VOCABULARY.words[euro[2:]]])
    served.pub.publish(2, [handle], ids("!"))
    served.until(Finished)
    served.join(asking)
    assert asking.text == "\u20ac!"


def test_detokenize_false_has_no_text(served: Served) -> None:
    asking, request = served.ask("x", detokenize=False, max_tokens=3)
    handle = served.bind(request, 0)
    served.publish(handle, "abc")
    served.until(Finished)
    served.join(asking)
    assert asking.text == ""
    assert asking.outputs[-1].token_ids[-1:] == ids("c")


def test_stop_strings_without_a_tokenizer_are_refused(runtime_dir: Path) -> None:
    topology = Topology(runtime_dir=runtime_dir, processors={"mode": "inline"})
    with Pipeline(topology) as pipe:
        asking = Asking(pipe.endpoint, SamplingParams(stop=("x",)), [1])
        while asking.is_alive():
            pipe.wait(0.02)
        (output,) = asking.outputs
        assert output.finish_reason == FinishReason.ERROR
        assert "tokenizer" in (output.error or "")
        assert not pick(pipe.poll(), Submitted)


def test_a_tokenizer_that_cannot_be_read_is_named_at_the_start(
    runtime_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.json").write_text("{}")
    topology = Topology(runtime_dir=runtime_dir, tokenizer=tmp_path / "other.json")
    with pytest.raises(StartupError, match=r"other\.json") as caught:
        Pipeline(topology)
    assert "Traceback" not in str(caught.value)


def test_a_tokenizer_that_is_not_there_is_named_before_anything_starts(
    runtime_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Path
) -> None:
    for path, said in ((tmp_path / "none.json", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=f"^tokenizer: {path} cannot be read: {said}"):
            Pipeline(Topology(runtime_dir=runtime_dir, tokenizer=path))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"^tokenizer: .* needs the extra tokenpipe\[text\]"):
        Pipeline(Topology(runtime_dir=runtime_dir, tokenizer=tokenizer))
    assert not list(runtime_dir.iterdir())
