"""A processor dies by SIGKILL, and nobody notices: its next process goes on where it was."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.engine import Engine
from tests.pipeline.played import WORDS, token
from tests.postprocess.vocab import real
from tokenpipe import (
    AsyncClient,
    Client,
    ErrorCode,
    Pipeline,
    ProcessorLost,
    ProcessorRestarted,
    RankLost,
    RankUp,
    RequestOutput,
    Rescheduled,
    SamplingParams,
    Topology,
)
from tokenpipe.supervisor import ChildSpec
from tokenpipe.types import FINISH_CODES
from tokenpipe.worker import EngineSpec

REQUESTS = 12
LENGTH = 240
KILLS = int(os.environ.get("TOKENPIPE_KILLS", "6"))
COLUMNS = 1000  # prompts from this number on are a columnar client's


class Played(Engine):
    """The engine of these tests, with workers that run `tests.pipeline.played`."""

    admitted: Path

    def start_worker(self, dp: int, tp: int) -> None:
        arguments = {"admitted": str(self.admitted), "rate": 200.0}
        engine = EngineSpec("tests.pipeline.played:Played", arguments)
        args = ["--endpoint", self.pipe.endpoint, "--dp", str(dp), "--tp", str(tp)]
        args += ["--engine", engine.target]
        env = engine.environment
        spec = ChildSpec("worker", f"{dp}.{tp}", "tokenpipe.worker", tuple(args), env)
        self.workers[dp, tp] = self.supervisor.start(spec)

    def admissions(self) -> Counter[str]:
        """Return how often each line was written."""
        return Counter(self.admitted.read_text().splitlines())


@contextmanager
def played(base: Path, tmp_path: Path, **more: Any) -> Iterator[Played]:
    tokenizer = tmp_path / "tokenizer.json"
    real("gpt2_style").tokenizer.save(str(tokenizer))
    topology = Topology(
        runtime_dir=base,
        data_parallel_size=2,
        slots_per_rank=16,
        tokenizer=tokenizer,
        policies={"restarts": 1000},
        **more,
    )
    with Pipeline(topology) as pipe:
        it = Played(pipe, tmp_path / "logs", 0.0)
        it.admitted = tmp_path / "admitted"
        it.admitted.touch()
        try:
            for dp, tp in topology.workers:
                it.start_worker(dp, tp)
            it.until(lambda: it.scheduler.counts["RankUp"] == 2)
            yield it
            for dp in range(2):
                pipe.step_lane(dp).end()
            it.until(lambda: it.supervisor.poll() or not it.supervisor.living)
        finally:
            it.supervisor.close(0.0)


def params_of(n: int) -> SamplingParams:
    """Return the parameters of request `n` of a round."""
    # The text of the 100th word of its output ends request 3.
    words = [real("gpt2_style").tokenizer.decode([token(n, at)]) for at in (100, 101)]
    return SamplingParams(
        max_tokens=LENGTH + n,
        logprobs=[None, 0, 3][n % 3],
        prompt_logprobs=0 if n % 4 == 1 else None,
        stop=("".join(words),) if n == 3 else (),
        stop_token_ids=(token(n, 150),) if n == 4 else (),
        stream_interval=5 if n == 5 else 1,
        stream_interval_ms=40 if n == 6 else 0,
    )


@dataclass
class Whole:
    """All that a caller got of one request."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[Any] = field(default_factory=list)
    extras: list[Any] = field(default_factory=list)
    end: Any = None

    def add(self, out: RequestOutput) -> None:
        assert out.offset == len(self.tokens)
        self.tokens += out.token_ids
        self.text += out.text
        self.logprobs += out.logprobs or []
        self.extras += [*(out.prompt_logprobs or []), *(out.custom or [])]
        if out.finished:
            self.end = out.finish_reason, out.stop_reason, out.error, out.error_code, out.usage


class Round(threading.Thread):
    """Asks for all requests of a round, by streams and by columns."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.answers = {n: Whole() for n in range(REQUESTS)}
        self.columns = {n: Whole() for n in range(COLUMNS, COLUMNS + 4)}
        self.longest_s = 0.0  # the longest time without output
        self.failure: BaseException | None = None
        self.start()

    @property
    def got(self) -> int:
        return sum(len(answer.tokens) for answer in self.answers.values())

    def run(self) -> None:
        try:
            columns = threading.Thread(target=self._columns)
            columns.start()
            asyncio.run(self._ask())
            columns.join()
        except BaseException as failure:
            self.failure = failure

    async def _ask(self) -> None:
        async with AsyncClient(self.endpoint) as client:
            await asyncio.gather(*(self._one(client, n) for n in self.answers))

    async def _one(self, client: AsyncClient, n: int) -> None:
        last = None
        async for out in client.generate([n, 7, 8, 9], params_of(n)):
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - (last or now))
            last = now
            self.answers[n].add(out)

    def _columns(self) -> None:
        with Client(self.endpoint) as client:
            params = SamplingParams(max_tokens=LENGTH)
            keys = {client.submit([n, 7], params): n for n in self.columns}
            while keys:
                for frame in client.frames(timeout_s=1.0):
                    self._frame(frame, keys)

    def _frame(self, frame: Any, keys: dict[int, int]) -> None:
        at = letter = 0
        for i, key in enumerate(frame.keys.tolist()):
            count, size = int(frame.counts[i]), int(frame.text_len[i])
            tokens = frame.tokens[at : at + count].tolist()
            text = frame.text_bytes[letter : letter + size]
            at, letter = at + count, letter + size
            mine = self.columns[keys[key]]  # a KeyError: a row after the end
            known = len(mine.tokens) - int(frame.offsets[i])
            assert known >= 0
            assert tokens[:known] == mine.tokens[len(mine.tokens) - known :][: len(tokens)]
            mine.tokens += tokens[known:]
            had = mine.text.encode()
            if size:
                mine.text += text[len(had) - int(frame.text_offset[i]) :].decode()
            if frame.finish[i]:
                mine.end = FINISH_CODES[int(frame.finish[i])]
                del keys[key]


def finished(it: Played, round_: Round) -> Round:
    it.until(lambda: not round_.is_alive(), 90.0)
    if round_.failure is not None:
        raise round_.failure
    return round_


@pytest.mark.parametrize("processors", [1, 2])
def test_kill_9_at_any_moment_changes_no_byte(
    runtime_dir: Path, tmp_path: Path, processors: int
) -> None:
    with played(runtime_dir, tmp_path, processors={"count": processors}) as it:
        undisturbed = finished(it, Round(it.pipe.endpoint))
        for n, whole in undisturbed.answers.items():  # the run with which others are compared
            length = {3: 102, 4: 151}.get(n, LENGTH + n)
            assert whole.tokens == [token(n, at) for at in range(length)]
            assert whole.end[2:4] == (None, ErrorCode.NONE)
        once = it.admissions()
        dice = random.Random(processors)
        for kill in range(1, KILLS + 1):
            moment = dice.randrange(1, undisturbed.got * 9 // 10)
            round_ = Round(it.pipe.endpoint)
            it.until(lambda: round_.got >= moment or not round_.is_alive())  # noqa: B023
            os.kill(it.pipe.processor_pids[dice.randrange(processors)], signal.SIGKILL)
            finished(it, round_)
            it.until(lambda: len(it.seen(ProcessorRestarted)) == kill)  # noqa: B023
            assert round_.answers == undisturbed.answers
            assert round_.columns == undisturbed.columns
            print(f"kill {kill} after {moment} tokens: the longest gap {round_.longest_s:.2f} s")
        # No request was given to a worker again, and no rank was lost.
        admitted = it.admissions()
        prompts = Counter(line.split()[0] for line in admitted.elements())
        assert set(prompts.values()) == {KILLS + 1}
        assert all(line.split()[1] == "0" for line in admitted)
        assert not [line for line in once if line.split()[1] != "0"]
        for kind in (ProcessorLost, RankLost, Rescheduled):
            assert not it.seen(kind)
        assert len(it.seen(RankUp)) == 2
        assert WORDS
